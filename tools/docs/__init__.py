"""Write the pages that are made from the code: one module for each page."""
