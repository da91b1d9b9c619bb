#!/usr/bin/env python3
"""Draws a run's loss curve as SVG or as text, from its metrics.jsonl alone.

usage: loss_curve.py RUN [--line VALUE LABEL] > loss.svg
       loss_curve.py RUN --text

RUN is a run directory. The figure shows the loss of every step, its moving mean over 2% of the steps
and the validation losses. --line adds a level to compare with. The axis ends at the highest loss
after the first 2% of the steps, so that higher losses before it are cut off. --text prints the
moving mean (*) and the validation losses (o) for a terminal; its axis ends at the highest of them
after the first 5% of the steps.
"""

import argparse
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 44, 46


def nice_step(span, most):
    """Returns the smallest of 1, 2, 5 x 10^k that divides span into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= most)


def ticks(low, high, most):
    step = nice_step(high - low, most)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def moving_mean(values, window):
    total, means = 0.0, []
    for i, value in enumerate(values):
        total += value - (values[i - window] if i >= window else 0.0)
        means.append(total / min(i + 1, window))
    return means


def read_metrics(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["loss"] is not None]
    if len(rows) < 2:
        sys.exit(f"{path}: fewer than two steps with a loss")
    return rows


def draw(rows, title, line):
    losses = [row["loss"] for row in rows]
    validation = [(row["step"], row["validation_loss"]) for row in rows if row.get("validation_loss")]
    means = moving_mean(losses, max(1, len(rows) // 50))
    x_low, x_high = rows[0]["step"], rows[-1]["step"]
    shown = losses[len(losses) // 50:] + [v for _, v in validation] + ([line[0]] if line else [])
    low, high = min(shown), max(shown)
    y_low, y_high = low - 0.05 * (high - low), high + 0.02 * (high - low)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - x_low) / (x_high - x_low)

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (y_high - loss) / (y_high - y_low)

    def path(values):
        return f'clip-path="url(#plot)" d="M' + " ".join(f"{x(row['step']):.1f},{y(v):.1f}" for row, v in zip(rows, values)) + '"'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',
           f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
           f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
           f'<text x="{LEFT}" y="24" font-size="15" fill="#222">{html.escape(title)}</text>']
    for value in ticks(y_low, y_high, 8):
        out.append(f'<path d="M{LEFT},{y(value):.1f} H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
                   f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#555">'
                   f'{value:g}</text>')
    for value in ticks(x_low, x_high, 8):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" '
                   f'fill="#555">{value:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" '
               f'fill="#555">step</text>')
    out.append(f'<path {path(losses)} fill="none" stroke="#9ec5ea" stroke-width="1"/>')
    out.append(f'<path {path(means)} fill="none" stroke="#1f6fb5" stroke-width="2"/>')
    labels = [("#9ec5ea", "loss of a step"), ("#1f6fb5", "moving mean")]
    if line:
        out.append(f'<path d="M{LEFT},{y(line[0]):.1f} H{WIDTH - RIGHT}" stroke="#888" '
                   f'stroke-dasharray="6 4"/>')
        labels.append(("#888888", f"{line[1]}: {line[0]:.3f}"))
    for step, loss in validation:
        out.append(f'<circle cx="{x(step):.1f}" cy="{y(loss):.1f}" r="4" fill="#d1495b"/>')
    if validation:
        labels.append(("#d1495b", f"validation loss, last: {validation[-1][1]:.3f}"))
    for i, (colour, label) in enumerate(labels):
        at = TOP + 16 + 20 * i
        out.append(f'<rect x="{WIDTH - 290}" y="{at - 9}" width="14" height="10" fill="{colour}"/>'
                   f'<text x="{WIDTH - 268}" y="{at}" fill="#333">{html.escape(label)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def draw_text(rows, title):
    columns, lines = 60, 10
    means = moving_mean([row["loss"] for row in rows], max(1, len(rows) // 50))
    points = [(row["step"], mean, "*") for row, mean in zip(rows, means)]
    points += [(row["step"], row["validation_loss"], "o") for row in rows if row.get("validation_loss")]
    shown = [loss for _, loss, _ in points[len(rows) // 20:]]
    low, high = min(shown), max(shown)
    first, last = rows[0]["step"], rows[-1]["step"]
    plot = [[" "] * columns for _ in range(lines)]
    for step, loss, mark in points:
        if loss <= high:
            line = round((lines - 1) * (high - loss) / ((high - low) or 1))
            plot[line][round((columns - 1) * (step - first) / (last - first))] = mark
    labels = [f"{high:.2f}"] + [""] * (lines - 2) + [f"{low:.2f}"]
    text = [title] + [f"{label:>7} |{''.join(line).rstrip()}" for label, line in zip(labels, plot)]
    text += [" " * 8 + "+" + "-" * columns, " " * 9 + f"{first}" + f"{last}".rjust(columns - len(str(first)))]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--line", nargs=2, metavar=("VALUE", "LABEL"))
    parser.add_argument("--text", action="store_true")
    options = parser.parse_args()
    line = (float(options.line[0]), options.line[1]) if options.line else None
    try:
        rows = read_metrics(options.run / "metrics.jsonl")
    except OSError as error:
        sys.exit(str(error))
    title = f"{options.run.name}: loss, nats per token"
    sys.stdout.write(draw_text(rows, title) if options.text else draw(rows, title, line))


if __name__ == "__main__":
    main()
