"""How the page looks: light and dark as the reader's system is, on paper, on a phone."""

STYLE = """\
:root {
  color-scheme: light dark;
  --ground: #faf9f6; --card: #ffffff; --line: #dedbd2; --soft: #f1efe9;
  --ink: #22211e; --dim: #636059; --accent: #0b5c72; --person: #7a3e00;
  --good: #1b6b32; --bad: #ab2217; --warn: #805300;
  --added: #e3f4e4; --added-ink: #14532a; --gone: #fbe6e3; --gone-ink: #8a1c12;
  --k: #8a1a6b; --s: #1d6637; --m: #8a4b00; --n: #1650a0; --c: #65625b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #171716; --card: #1f1f1d; --line: #3b3a36; --soft: #282825;
    --ink: #e9e7e1; --dim: #a5a199; --accent: #7cc7dc; --person: #eab27a;
    --good: #7fce94; --bad: #ff978a; --warn: #e5bb5e;
    --added: #17331f; --added-ink: #a9e3b8; --gone: #42201c; --gone-ink: #ffbab1;
    --k: #e79ad0; --s: #93d6a8; --m: #eab27a; --n: #94bdf5; --c: #a5a199;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere;
}
.page { max-width: 52rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--card); padding: .5rem 1rem; }
a { color: var(--accent); text-underline-offset: .15em; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; letter-spacing: -.01em; }
h2, h3, h4, h5, h6 { line-height: 1.3; margin: 1.4em 0 .5em; font-size: 1.05rem; }
h2 { font-size: 1.15rem; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 0;
  font-size: .92rem; }
dl.facts dt { color: var(--dim); }
dl.facts dd { margin: 0; }
nav { margin: 2rem 0 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .92rem; overflow-wrap: normal; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.words > .scroll, .words > pre { margin: 1em 0; }
.words th, .words td { padding: .35rem .75rem; border: 1px solid var(--line); }
.words th { background: var(--soft); }
th { font-weight: 600; }
nav th, nav td { white-space: nowrap; }
nav td a { text-decoration: none; } nav td a:hover { text-decoration: underline; }
.turns .scroll { padding: 0 .8rem .4rem; }
nav td.title { overflow-wrap: anywhere; white-space: normal; min-width: 14rem; width: 99%; }
.to-right { text-align: right; } .to-center { text-align: center; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
section.turn { margin-top: 2.5rem; padding-top: .5rem; border-top: 1px solid var(--line); }
.turn > h2 { display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap;
  font-size: .85rem; font-weight: 600; color: var(--dim); margin: .5rem 0 1rem; }
time { font-weight: 400; color: var(--dim); }
.said { margin: 1rem 0; }
.by { font-size: .8rem; font-weight: 600; color: var(--dim); margin: 1.1rem 0 -.7rem; }
.said > .by { margin: 0 0 .2rem; }
.heard { background: var(--card); border: 1px solid var(--line); border-left: .25rem solid
  var(--person); border-radius: .4rem; padding: .7rem 1rem; }
.heard > .by { color: var(--person); }
.heard > .text { white-space: pre-wrap; margin: 0; }
.words > :first-child { margin-top: 0; } .words > :last-child { margin-bottom: 0; }
.words blockquote { margin: 1em 0; padding-left: 1rem; border-left: .2rem solid var(--line);
  color: var(--dim); }
.words hr { border: 0; border-top: 1px solid var(--line); }
ul, ol { padding-left: 1.5rem; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; font-size: .86em; }
:not(pre) > code { background: var(--soft); padding: .1em .3em; border-radius: .25rem; }
pre { background: var(--soft); border-radius: .4rem; padding: .7rem .9rem; margin: .5rem 0;
  overflow-x: auto; white-space: pre; line-height: 1.45; tab-size: 4; overflow-wrap: normal; }
pre code { font-size: 1em; }
pre.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.long { max-height: 34rem; overflow-y: auto; }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .45rem 0;
  background: var(--card); }
summary { cursor: pointer; padding: .4rem .8rem; display: flex; gap: .6rem; align-items: baseline;
  list-style: none; font-size: .9rem; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "\\25B8"; color: var(--dim); flex: none; }
details[open] > summary::before { content: "\\25BE"; }
summary .label { flex: 1; min-width: 0; background: none; padding: 0; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
details[open] > summary .label { white-space: normal; }
summary .took:empty { display: none; }
summary .took { color: var(--dim); font-size: .8rem; white-space: nowrap; }
.inside { padding: 0 .8rem .6rem; }
.inside > p { margin: .3rem 0; }
.inside > p.what { font-size: .8rem; color: var(--dim); margin: .8rem 0 .2rem; font-weight: 600; }
.stage { font-size: .78rem; font-weight: 600; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.dim, .news, .over { color: var(--dim); font-size: .88rem; }
.over { margin: 1.2rem 0 0; } .over p, .news { margin: .3rem 0; }
.diff code { display: inline-block; min-width: 100%; }
.diff code span { display: block; min-height: 1.45em; }
.diff .added { background: var(--added); color: var(--added-ink); }
.diff .gone { background: var(--gone); color: var(--gone-ink); }
.diff .hunk, .diff .dim { color: var(--dim); font-size: 1em; }
.k-k { color: var(--k); } .k-s { color: var(--s); } .k-m { color: var(--m); }
.k-n { color: var(--n); } .k-c { color: var(--c); font-style: italic; }
.k-gi { color: var(--added-ink); } .k-gd { color: var(--gone-ink); } .k-gh, .k-gu { color: var(--c); }
figure { margin: .6rem 0; }
figure img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem; }
figcaption { font-size: .8rem; color: var(--dim); }
.todos { list-style: none; padding-left: 0; margin: .4rem 0; }
.child { border-left: .2rem solid var(--accent); padding-left: 1rem; margin: .8rem 0; }
.child > summary { padding-left: 0; }
details.child { border-width: 0 0 0 .2rem; border-radius: 0; background: none; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--dim); font-size: .82rem; }
@media (max-width: 34rem) {
  .page { padding: 1.25rem .9rem 3rem; }
  h1 { font-size: 1.35rem; }
  dl.facts { grid-template-columns: 1fr; gap: 0; }
  dl.facts dt { font-size: .78rem; margin-top: .45rem; }
  .heard { padding: .6rem .75rem; }
  summary { padding: .55rem .65rem; }
  nav .wide { display: none; }
  nav td.title { min-width: 9rem; }
}
@media print {
  :root { color-scheme: light; }
  .page { max-width: none; padding: 0; }
  pre, pre.long { white-space: pre-wrap; overflow: visible; max-height: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
  .skip { display: none; }
}
"""
