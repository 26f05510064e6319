"""The best-configuration heatmap: the texts of its cells, caption, colours, the page they fit on, and the drawing.

What is best in a cell is decided in ``analysis.derive.best``. Other figures belong to ``analysis.figures``.
"""
