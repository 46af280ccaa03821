"""The map of a repository: what each file defines, mentions and imports, ranked, without a model.

`facts` reads one file, `map_file` keeps the facts outside the repository, `refresh` brings them up to
date, `rank` orders files by what mentions them. `questions` answers about a file or a symbol, and `outline`
writes the map within a number of tokens. Lines and callers are always read from the files as they are
now: what is kept only says where to look.
"""
