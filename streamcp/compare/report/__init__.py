"""The report of a comparison: one HTML file with figures, tables, data, and how it was measured.

What is said in words comes from above; here lie the figures and the page.
"""
