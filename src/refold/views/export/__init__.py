"""A session as a document that is read elsewhere: Markdown, HTML, plain text. Pure."""
