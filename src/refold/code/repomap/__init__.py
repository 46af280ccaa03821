"""The map of a repository: what each file defines, mentions and imports, and its rank.

It is made without a model. `facts` reads one file, `map_file` stores the facts outside the
repository, `refresh` updates them, and `rank` orders files by the mentions of them.
`repository_map` answers questions about a file or a symbol, and `outline` renders the map
within a number of tokens. Lines and callers are always read from the current files: the stored
facts only say which files to read.

The map stores hashes of the names that a file mentions, and not each use with its line: such an
index would be many times as large and wrong as soon as a file changes. Reading the few
candidates again also ensures that an agent sees nothing that it may not read. Language servers
are exact, but need a working build and one server for each language.
"""
