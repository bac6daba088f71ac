//! The pages of a report: an index that opens with the answer, a page for each paper, one for a real host, one for the
//! kernel on metal, and one for constants, laws and runs.
//!
//! A page needs nothing but itself to be read: style, script and figures are in it. Its links lead to the other pages
//! and to the files of its figures. What each template is given is a struct beside it; here is what all have.

mod constants;
mod experiment;
mod index;
mod paper;

use super::differences::anchor;
use super::figure::Figure;
use super::papers::by_weight;
use super::{figures, looks, metal, real_host, svg};
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use pageferry_lab::judge::Reproduction;
use real_host::RealHost;
use serde::Serialize;

const TEMPLATES: [(&str, &str); 7] = [
    ("base.html", include_str!("base.html")),
    ("macros.html", include_str!("macros.html")),
    ("report.html", include_str!("report.html")),
    ("paper.html", include_str!("paper.html")),
    ("real-host.html", include_str!("real-host.html")),
    ("metal.html", include_str!("metal.html")),
    ("constants.html", include_str!("constants.html")),
];
const STYLE: &str = include_str!("style.css");
const FIGURE_STYLE: &str = include_str!("figure.css");
const DARK_STYLE: &str = include_str!("dark.css");
const SCRIPTS: [&str; 2] = [include_str!("open.js"), include_str!("png.js")];

/// A page of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Its file, from the folder of the report: `report.html`, `papers/uvm.html`.
    pub path: String,
    /// Its text.
    pub html: String,
}

/// What all pages have.
#[derive(Serialize)]
struct Site<'a> {
    version: &'a str,
    seed: u64,
    figure_style: String,
    style: String,
    script: String,
    papers: Vec<PaperLink<'a>>,
    real_host: bool,
    /// Whether there are figures, in a folder of theirs.
    figures: bool,
}

#[derive(Serialize)]
struct PaperLink<'a> {
    name: &'a str,
    short: &'a str,
}

/// A page for its template.
#[derive(Serialize)]
struct View<'a, T> {
    site: &'a Site<'a>,
    /// From the page to the folder of the report.
    root: &'a str,
    #[serde(flatten)]
    page: T,
}

#[derive(Serialize)]
struct HostsView<'a> {
    real_hosts: Vec<RealHost<'a>>,
}

#[derive(Serialize)]
struct MetalView {
    kinds: Vec<metal::Kind>,
}

/// A paper's page, from the folder of the report.
pub(super) fn of_paper(name: &str) -> String {
    format!("papers/{name}.html")
}

/// Where the figures of an experiment, or of a paper, stand.
fn page_of(of: &Reproduction, figure: &Figure) -> String {
    let experiment = of.experiments.iter().find(|e| e.name == figure.experiment);
    let paper = experiment.map_or(figure.experiment.as_str(), |e| e.file.paper_name());
    if of.papers.contains_key(paper) { of_paper(paper) } else { "report.html".into() }
}

/// A figure as a file of its own.
pub(super) fn standalone(of: &Reproduction, figure: &Figure) -> String {
    let legend = figure.legend.iter().map(|key| (key.sample.as_str(), key.label.as_str())).collect();
    let frame = svg::Frame {
        style: &figure_style(),
        title: &figure.title,
        subtitle: &figure.subtitle,
        legend,
        page: &format!("../{}", page_of(of, figure)),
    };
    svg::standalone(&figure.wide, &frame)
}

/// The style of drawings on light pages.
pub(super) fn figure_style() -> String {
    format!("{FIGURE_STYLE}{}", looks::css(false))
}

/// The rest of the pages' style, and the colours for dark pages where these are preferred.
fn style() -> String {
    format!("{STYLE}@media(prefers-color-scheme:dark){{\n{DARK_STYLE}{}}}\n", looks::css(true))
}

/// All pages, the index first.
pub(super) fn all(of: &Reproduction) -> Vec<Page> {
    let figures = figures::all(of);
    let papers = by_weight(of);
    // A report of experiments of one's own is about these.
    let real_host = of.own().is_empty();
    let site = Site {
        version: env!("CARGO_PKG_VERSION"),
        seed: of.seed,
        figure_style: figure_style(),
        style: style(),
        script: SCRIPTS.concat(),
        papers: papers.iter().map(|j| PaperLink { name: j.name, short: &j.paper.short }).collect(),
        real_host,
        figures: !figures.is_empty(),
    };
    let environment = environment();
    let mut pages = vec![Page {
        path: "report.html".into(),
        html: rendered(
            &environment,
            "report.html",
            &View { site: &site, root: "", page: index::view(of, &papers, &figures) },
        ),
    }];
    for judgement in &papers {
        let page = paper::view(of, judgement, &figures);
        let html = rendered(&environment, "paper.html", &View { site: &site, root: "../", page });
        pages.push(Page { path: of_paper(judgement.name), html });
    }
    let mut besides = |path: &str, html: String| pages.push(Page { path: path.into(), html });
    if real_host {
        let page = HostsView { real_hosts: real_host::hosts(&figures) };
        let view = View { site: &site, root: "./", page };
        besides("real-host.html", rendered(&environment, "real-host.html", &view));
        let view = View { site: &site, root: "./", page: MetalView { kinds: metal::kinds() } };
        besides("metal.html", rendered(&environment, "metal.html", &view));
    }
    let view = View { site: &site, root: "./", page: constants::view(of) };
    besides("constants.html", rendered(&environment, "constants.html", &view));
    pages
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.add_filter("code", code);
    environment.add_filter("differs", |published: &str| anchor(published));
    for (name, text) in TEMPLATES {
        environment.add_template(name, text).expect("the templates are part of the program");
    }
    environment
}

fn rendered<T: Serialize>(environment: &Environment<'_>, template: &str, view: &View<'_, T>) -> String {
    let template = environment.get_template(template).expect("it was added");
    template.render(Value::from(Serde(view))).expect("the template names only what it is given")
}

/// Text in which what is between backticks is code.
fn code(text: &str) -> Value {
    let parts = text.split('`').enumerate().map(|(i, part)| match i % 2 {
        0 => svg::escape(part),
        _ => format!("<code>{}</code>", svg::escape(part)),
    });
    Value::from_safe_string(parts.collect())
}
