"""Figures as SVG: what they show comes in as plain values, so that any measurement can use them.

A chart is drawn twice, for a wide and for a narrow page, and its colours are names that the page
gives values to. The modules know neither jobs nor runs.
"""
