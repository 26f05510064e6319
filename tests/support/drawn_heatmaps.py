"""What a drawn heatmap shows, and whether it is legible: nothing cut, nothing overlapping."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from analysis.heatmap.page import SIZES

SLACK_PX = 0.75


def written(figure):
    """The texts that are shown."""
    found = [t for a in figure.axes for t in (*a.texts, *a.get_xticklabels(), *a.get_yticklabels(), a.xaxis.label)]
    return [t for t in (*found, *figure.texts) if t.get_text() and t.get_visible()]


def boxes(figure):
    """(text, its box in pixels) of everything written in a figure, laid out as when it is drawn."""
    figure.set_dpi(200)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    return [(t, t.get_window_extent(renderer)) for t in written(figure)]


def sound(heatmap):
    """Nothing leaves the figure, cell text stays in its cell, no two texts overlap, and nothing is too small."""
    texts, whole, axes = boxes(heatmap.figure), heatmap.figure.bbox, heatmap.figure.axes[0]
    for text, box in texts:
        assert min(box.x0, box.y0, whole.x1 - box.x1, whole.y1 - box.y1) >= -SLACK_PX, text.get_text()
        assert text.get_fontsize() >= SIZES[-1]
    in_cells = {id(text) for text in axes.texts if text.get_position()[1] > 0}  # names of kinds of nodes are above
    for text, box in texts:
        if id(text) not in in_cells:
            continue
        column = int(text.get_position()[0])
        left, right = (axes.transData.transform((edge, 0))[0] for edge in (column, column + 1))
        assert min(box.x0 - left, right - box.x1) >= -SLACK_PX, text.get_text()
    no_overlap(texts)


def no_overlap(texts):
    edges = np.array([[b.x0, b.y0, b.x1, b.y1] for _, b in texts])
    # Lines of one block may overlap in ascenders and descenders.
    shrink = (edges[:, 3] - edges[:, 1]) * 0.16
    edges[:, 1] += shrink
    edges[:, 3] -= shrink
    for at, (x0, y0, x1, y1) in enumerate(edges):
        hit = (edges[:, 0] < x1 - 1) & (edges[:, 2] > x0 + 1) & (edges[:, 1] < y1) & (edges[:, 3] > y0)
        hit[at] = False
        assert not hit.any(), (texts[at][0].get_text(), texts[int(np.argmax(hit))][0].get_text())


def words(heatmap):
    return " ".join(text.get_text() for text in written(heatmap.figure))
