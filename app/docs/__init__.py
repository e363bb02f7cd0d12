"""The documentation: Markdown pages, readable in the repository and served as HTML under /docs."""
