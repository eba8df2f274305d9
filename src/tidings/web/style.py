"""The style sheet: system fonts, one deep teal, greys; light and dark follow the system. Sizes 13/15/18/24, steps of 4 px."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fdfdfc; --ink: #1d2424; --soft: #5a6565; --rule: #dfe4e3; --accent: #0f6b6b; --on-accent: #ffffff; --field: #ffffff;
  --c0: #5f6b6b; --c1: #b4540f; --c2: #0f6b6b; --c3: #3d5a99; --c4: #8a2b5c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #151a1a; --ink: #e3e8e7; --soft: #9aa6a5; --rule: #2d3535; --accent: #5cc0b8;
    --on-accent: #0c1615; --field: #1c2323;
    --c0: #a3adad; --c1: #e79a5c; --c2: #5cc0b8; --c3: #93b0ee; --c4: #dd8fb8;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/24px system-ui, sans-serif; }
main, header, footer { max-width: 832px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; }
h1 { margin: 0; font-size: 24px; line-height: 32px; font-weight: 650; letter-spacing: -0.01em; }
h1 a { color: inherit; text-decoration: none; }
h2 { margin: 48px 0 8px; font-size: 18px; line-height: 28px; font-weight: 600; }
h3 { margin: 32px 0 4px; font-size: 15px; line-height: 24px; font-weight: 600; }
p { margin: 4px 0 12px; max-width: 65ch; }
.soft, footer { color: var(--soft); }
.small, footer { font-size: 13px; line-height: 20px; }
a { color: var(--accent); }
code { font: 13px/20px ui-monospace, monospace; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
form { margin: 16px 0 0; }
fieldset { margin: 0 0 16px; padding: 0; border: 0; }
legend, .label { padding: 0; font-size: 13px; line-height: 20px; color: var(--soft); }
.choices { display: grid; grid-template-columns: repeat(auto-fill, minmax(168px, 1fr)); gap: 0 16px; }
.choices label { display: flex; gap: 8px; align-items: center; min-height: 28px; }
input[type=checkbox] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
.row { display: flex; flex-wrap: wrap; gap: 16px; align-items: end; }
.row label { display: block; }
.label { display: block; }
input[type=number], select {
  font: inherit; color: inherit; background: var(--field); border: 1px solid var(--soft); border-radius: 6px; padding: 4px 8px;
  height: 36px; min-width: 112px;
}
button {
  font: inherit; font-weight: 600; color: var(--on-accent); background: var(--accent); border: 0; border-radius: 6px;
  height: 36px; padding: 0 20px; cursor: pointer;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 8px 0; min-width: 100%; }
caption { text-align: left; color: var(--soft); font-size: 13px; line-height: 20px; padding-bottom: 8px; }
th, td { padding: 4px 16px 4px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-size: 13px; font-weight: 500; color: var(--soft); }
th:first-child, td:first-child { text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
tbody th { color: var(--ink); font-size: 15px; font-weight: 400; }
tr.limit th, tr.limit td { color: var(--soft); }
dl { margin: 8px 0 0; display: grid; grid-template-columns: 176px 1fr; }
dt, dd { margin: 0; padding: 4px 0; border-bottom: 1px solid var(--rule); }
dt { font-weight: 500; }
.problem h2 { margin-top: 0; }
.problem { border-left: 3px solid var(--accent); padding: 4px 16px; margin: 24px 0; }
footer { margin-top: 48px; padding-bottom: 40px; }
svg { display: block; width: 100%; height: auto; margin: 8px 0; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .tick { fill: var(--soft); }
svg .you { fill: var(--ink); font-weight: 600; }
svg .grid { stroke: var(--rule); }
svg .axis { stroke: var(--soft); }
svg .mark { stroke: var(--soft); stroke-dasharray: 1 4; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .c0 { stroke: var(--c0); } svg .c1 { stroke: var(--c1); stroke-dasharray: 8 3; } svg .c2 { stroke: var(--c2); }
svg .c3 { stroke: var(--c3); stroke-dasharray: 3 3; } svg .c4 { stroke: var(--c4); stroke-dasharray: 9 3 2 3; }
svg .limit { stroke: var(--soft); stroke-dasharray: 2 4; }
svg .dot { stroke: none; }
svg .dot.c0, svg .name.c0 { fill: var(--c0); stroke: none; } svg .dot.c1, svg .name.c1 { fill: var(--c1); stroke: none; }
svg .dot.c2, svg .name.c2 { fill: var(--c2); stroke: none; } svg .dot.c3, svg .name.c3 { fill: var(--c3); stroke: none; }
svg .dot.c4, svg .name.c4 { fill: var(--c4); stroke: none; }
svg .dot.limit, svg .name.limit { fill: var(--soft); stroke: none; }
@media (max-width: 560px) { dl { grid-template-columns: 1fr; } dt { border: 0; padding-bottom: 0; } dd { padding-top: 0; } }
"""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#0f6b6b"/>'
    '<path d="M8 4v4l3 2" fill="none" stroke="#fff" stroke-width="1.6" stroke-linecap="round"/></svg>'
)
