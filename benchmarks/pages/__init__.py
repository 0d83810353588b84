"""The pages of results: tables as declarations, and what writes them."""
