//! The report, from runs that were made up: what it must show, whatever the numbers are.

use pageferry_lab::Registry;
use pageferry_lab::files::Experiment;
use pageferry_lab::judge::{Reproduction, Standing};
use pageferry_lab::output::PendingDir;
use pageferry_lab::record::{CpuCycles, Cycles, Host, Law, Record, RunResult};
use pageferry_lab::run::{Choices, RunSpec, matrix};
use pageferry_report::{Page, Report as _, results_csv};
use pageferry_teach::finding::findings;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// What the runs of a plan are judged.
fn judged(
    plan: &[RunSpec],
    runs: Vec<RunResult>,
    choices: Choices,
) -> Result<Reproduction, pageferry_lab::LabError> {
    let registry = Registry::standard();
    let mut of = registry.judged(plan, runs, choices)?;
    of.findings = findings(&of)?;
    Ok(of)
}

/// A result for `spec`: numbers that are different for each run, and invented.
fn invented(n: usize, spec: &RunSpec) -> RunResult {
    let fast = match spec.kernel.name.as_str() {
        "original" => 1.0,
        _ => 1.5,
    };
    let results: BTreeMap<String, f64> = [
        ("bandwidth_mb_s", 400.0 * fast + n as f64),
        ("ephemeral_hit_rate_percent", 99.95),
        ("tlb_invalidations", if fast > 1.0 { 0.0 } else { 51_200.0 }),
        ("ephemeral_invalidations", if fast > 1.0 { 0.0 } else { 51_200.0 }),
        ("local_cached_cycles", 510.0),
        ("local_cached_ns", 212.5),
        ("local_uncached_cycles", 990.0),
        ("remote_cycles", 4100.0),
        ("kernel_tlb_share_percent", 30.0),
        ("tlb_share_text_percent", 12.0),
        ("tlb_share_data_percent", 10.0),
        ("tlb_share_tables_percent", 5.0),
        ("tlb_share_devices_percent", 3.0),
        ("tlb_misses_per_s", 4e5),
        ("hash_hits_percent", 99.0),
        ("hash_misses_per_s", 4e3),
        ("hash_use_percent", 57.0),
        ("throughput_mbit_s", 900.0 * fast + n as f64),
        ("cpu_percent", 50.0 - n as f64 / 100.0),
        ("efficiency_mbit_per_cpu_percent", 20.0 * fast + n as f64),
        ("requests_per_s", 2000.0 * fast),
        ("lock_cycles_per_page", 5000.0 - n as f64),
        ("flush_cycles_per_page", 2000.0),
        ("moving_cycles_per_page", 20_000.0 - n as f64),
        ("beside_mb_s", 2000.0 - n as f64),
        ("programs_s", 1.5),
        ("wall_s", 2.0),
        ("time_us", 10.0 * fast + n as f64),
        ("pass_cycles", 5000.0 + n as f64),
        ("look_cycles", 12_000.0 + n as f64),
        ("moved_cycles_per_page", 4000.0 + n as f64),
        ("sender_entries_left", 2.0),
        ("source_entries_added", 0.0),
        ("entries_added", 0.0),
        ("round_cycles", 200_000.0 / fast),
        ("read_fault_cycles", 2000.0 + n as f64),
        ("lost_pages", 0.0),
        ("pages_out_per_s", 100.0 * fast),
        ("delivery_us", 50.0 * fast + n as f64),
        ("message_us", 30.0 * fast + n as f64),
        ("call_us", 20.0 * fast + n as f64),
        ("process_switch_us", 2.0),
        ("first_access_us", 1.0),
        ("ica_detach_us", 1.5),
        ("ica_attach_us", 0.5),
        ("system_call_us", 2.5),
        ("other_us", 1.25),
        ("pair_cycles", 123.4),
        ("pair_ns", 51.4),
        ("transactions_per_s", 5000.0 * fast),
        ("address_cycles_per_page", if fast > 1.0 { 0.0 } else { 700.0 }),
        ("read_mb_s", 20.0 * fast),
        ("footprint_mb", 150.0),
        ("write_mb_s", 30.0 * fast),
        ("copy_mb_s", 15.0 * fast),
        ("busy_cycles_per_page", 50_000.0 - n as f64),
        ("million_references_per_s", 20.0 * fast),
        ("round_us", 20.0 * fast + n as f64),
        ("tlb_misses_per_round", 4.0),
        ("tlb_misses_per_step", 0.0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let counters: BTreeMap<String, u64> = [
        ("tlb_invalidations_local", 25_600),
        ("tlb_invalidations_remote_issued", 25_600),
        ("invalidations_by_memory_disk", 0),
        ("remote_invalidations_by_memory_disk", 0),
        ("kva_allocations", 0),
        ("shootdown_ipis", 1_600),
        ("bytes_copied", 0),
        ("cow_copies", 0),
        ("nested_refills", 0),
        ("hash_evictions", 100),
        ("hash_users_displaced", 10),
        ("tlb_row_loads", 11),
        ("hash_kernel_displaced", 20),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into();
    let by_cause: BTreeMap<String, u64> =
        [("copy", 500), ("idle", 300), ("invalidate_local", 100), ("user", 100)]
            .map(|(c, n)| (c.to_owned(), n))
            .into();
    let cpu = CpuCycles { cpu: 0, total: 1000, by_cause: by_cause.clone() };
    let record = Record {
        experiment: spec.experiment.name.clone(),
        machine: spec.machine.name.clone(),
        kernel: spec.kernel.name.clone(),
        seed: spec.choices.seed,
        perturbed: spec.choices.perturbed,
        settings: spec.settings(),
        results,
        counters,
        cycles: Cycles { total: 1000, by_cause, per_cpu: vec![cpu] },
        hardware: BTreeMap::new(),
        locks: BTreeMap::new(),
        payload_ok: true,
        stale_translations: 0,
        laws: vec![Law { name: "the <sum> of causes".into(), held: true, fault: None }],
    };
    RunResult {
        record,
        host: Host { wall_ms: 12.5, measured_ms: 10.0, accesses_per_s: 2e7, ..Host::default() },
    }
}

/// The runs of all experiments.
static PLAN: LazyLock<Vec<RunSpec>> = LazyLock::new(|| {
    let experiments = Registry::standard().experiments().expect("embedded");
    let runs = |e| matrix(&Registry::standard(), &Arc::new(e), Choices::default()).expect("a matrix");
    experiments.into_iter().flat_map(runs).collect()
});

pub(crate) fn reproduction(change: impl Fn(&mut RunResult)) -> Reproduction {
    let mut runs: Vec<_> = PLAN.iter().enumerate().map(|(n, spec)| invented(n, spec)).collect();
    runs.iter_mut().for_each(change);
    judged(&PLAN, runs, Choices::default()).expect("its papers are there")
}

/// A reproduction with its pages: they take long to be made, and tests only look at them.
pub(crate) struct Fixture {
    pub(crate) of: Reproduction,
    pub(crate) pages: Vec<Page>,
}

impl Fixture {
    pub(crate) fn new(of: Reproduction) -> Fixture {
        Fixture { pages: of.pages(), of }
    }

    /// All pages, one after the other.
    pub(crate) fn html(&self) -> String {
        self.pages.iter().map(|page| page.html.as_str()).collect()
    }

    pub(crate) fn page(&self, path: &str) -> &str {
        &self.pages.iter().find(|page| page.path == path).unwrap_or_else(|| panic!("no {path}")).html
    }
}

/// What is invented, as it is.
pub(crate) fn invention() -> &'static Fixture {
    static INVENTION: LazyLock<Fixture> = LazyLock::new(|| Fixture::new(reproduction(|_| ())));
    &INVENTION
}

/// The drawings in a page.
pub(crate) fn drawings(html: &str) -> Vec<&str> {
    let all = html
        .match_indices("<svg")
        .map(|(at, _)| &html[at..at + html[at..].find("</svg>").expect("closed") + 6]);
    // Samples of legends are drawings, too, but not of anything.
    all.filter(|drawing| !drawing.contains("aria-hidden")).collect()
}

/// The figures of a page: id and all that is in it.
pub(crate) fn figures(html: &str) -> Vec<(&str, &str)> {
    let figure = |(at, open): (usize, &str)| {
        let rest = &html[at + open.len()..];
        let end = rest.find("</figure>").expect("closed");
        (rest.split('"').next().expect("an id"), &rest[..end])
    };
    html.match_indices("<figure id=\"").map(figure).collect()
}

/// What stands between each `from` and the next `to`.
pub(crate) fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).map(|rest| rest.split(to).next().expect("split gives one")).collect()
}

/// The legend of a figure: sample and label.
fn legend(figure: &str) -> Vec<(&str, &str)> {
    let keys =
        between(between(figure, "<ul class=\"legend\">", "</ul>")[0], "aria-hidden=\"true\">", "</li>");
    keys.into_iter().map(|key| key.split_once("</svg>").expect("a sample and a label")).collect()
}

/// Made-up runs of these experiments.
pub(crate) fn runs_of(experiments: Vec<Experiment>) -> Reproduction {
    let choices = Choices::default();
    let plan: Vec<RunSpec> = experiments
        .into_iter()
        .flat_map(|e| matrix(&Registry::standard(), &Arc::new(e), choices).expect("a matrix"))
        .collect();
    let runs = plan.iter().enumerate().map(|(n, spec)| invented(n, spec)).collect();
    judged(&plan, runs, choices).expect("its papers are there")
}

#[test]
fn curves_have_a_mark_for_each_published_value_and_none_for_what_is_held_out() {
    let html = invention().html();
    let figure = |id: &str| figures(&html).into_iter().find(|f| f.0 == id).expect("a figure").1;
    let marks = |id: &str| {
        drawings(figure(id)).first().map_or(0, |drawing| drawing.matches("class=\"published\"").count())
    };
    assert_eq!(marks("ping-pong-pentium-pro"), 4);
    assert_eq!(marks("pipeline-pentium-pro"), 2);
    assert!(figure("ping-pong-pentium-pro").contains("published, socket, touched, 4K: 35"));
    assert!(!figure("ping-pong-pentium-pro").contains("published, pass, touched"));
    assert_eq!(marks("null-write-pentium-pro"), 0, "all is held out");
}

#[test]
fn what_lessons_have_found_is_on_the_page() {
    let index = invention().page("report.html");
    let found = between(index, "<h2 id=\"found\">", "</main>")[0];
    assert!(found.contains("as printed") && found.contains("used a stale translation"), "{found}");
}

#[test]
fn the_page_shows_every_run_figure_and_constant() {
    let Fixture { of, .. } = invention();
    let html = invention().html();
    for machine in &of.machines {
        assert!(html.contains(&format!("<b>{}</b>", machine.name)), "{}", machine.name);
        assert!(machine.constants().iter().any(|c| html.contains(&c.key)));
    }
    let kinds = [
        "pipe-bandwidth",
        "pipe-gain",
        "pipe-cycles",
        "pipe-invalidations",
        "invalidation-cost",
        "invlpg-history",
        "hit-cost",
        "null-write-pentium-pro",
        "null-read-pentium-pro",
        "uvm-pipe-pentium-pro",
        "ping-pong-pentium-pro",
        "pipeline-pentium-pro",
        "mixed-pentium-pro",
        "answer-sf-buf",
        "answer-uvm",
    ];
    for id in kinds {
        assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    assert_eq!(
        drawings(&html).len(),
        2 * figures(&html).len(),
        "each figure is there for wide and for narrow pages"
    );
    for drawing in drawings(&html) {
        roxmltree::Document::parse(drawing).unwrap_or_else(|e| panic!("{e}: {drawing}"));
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
    }
    assert!(html.contains("the &lt;sum&gt; of causes"), "texts are escaped");
    for outside in ["http-equiv", "<script src", "<link", "src=\"http", "href=\"http", "url("] {
        assert!(!html.contains(outside), "the page needs nothing from outside: {outside}");
    }
    assert!(!html.contains("are broken"));
}

/// The colour of a sample of a legend.
fn colour(sample: &str) -> Option<&str> {
    sample.split(['"', ' ', '>']).find_map(|word| word.strip_prefix("f-").or(word.strip_prefix("s-")))
}

/// A sample of a legend, as it is without its colour and its name.
fn shape(sample: &str) -> String {
    let named = sample.split("<title>").map(|part| part.split("</title>").last().expect("split gives one"));
    let coloured = |word: &&str| ["f-", "s-", "on-"].iter().any(|class| word.starts_with(class));
    named.flat_map(|part| part.split(['"', ' '])).filter(|word| !coloured(word)).collect()
}

#[test]
fn every_series_has_a_mark_of_its_own_and_one_colour_in_all_figures() {
    let html = invention().html();
    let mut colours: BTreeMap<&str, &str> = BTreeMap::new();
    for (id, figure) in figures(&html) {
        let keys = legend(figure);
        for (i, (sample, label)) in keys.iter().enumerate() {
            for (other, name) in &keys[..i] {
                assert_ne!(shape(sample), shape(other), "{id}: {label} and {name} by colour alone");
            }
            let theirs = label.starts_with("published");
            if let Some(colour) = colour(sample).filter(|_| !theirs) {
                assert_eq!(*colours.entry(label).or_insert(colour), colour, "{label} has two colours");
            }
        }
    }
    assert!(colours.len() > 20, "{colours:?}");
}

#[test]
fn every_axis_has_a_name_and_says_when_it_is_logarithmic() {
    let html = invention().html();
    for (id, figure) in figures(&html) {
        for drawing in drawings(figure) {
            let axes = between(drawing, "class=\"axis\"", "</text>");
            let words: Vec<&str> = axes.iter().map(|axis| axis.split('>').nth(1).expect("words")).collect();
            assert!(words.iter().any(|axis| axis.contains(", ")), "{id}: no axis with a unit: {words:?}");
        }
    }
    let axes = |id: &str| {
        let figure = figures(&html).into_iter().find(|f| f.0 == id).expect("a figure").1;
        between(drawings(figure)[0], "class=\"axis\" text-anchor=\"start\">", "</text>").join("; ")
    };
    assert_eq!(axes("uvm-pipe-pentium-pro"), "bandwidth, MB/s (log); size, bytes (log)");
    assert_eq!(axes("mixed-pentium-pro"), "", "bars begin at zero");
}

/// Of what a mark from elsewhere is.
fn from_elsewhere(text: &str) -> Option<&str> {
    text.strip_prefix("published, ").or_else(|| text.strip_prefix("measured, "))
}

#[test]
fn every_published_point_names_its_series() {
    let html = invention().html();
    let mut points = 0;
    for (id, figure) in figures(&html) {
        let named: Vec<&str> = legend(figure).iter().filter_map(|key| from_elsewhere(key.1)).collect();
        for point in between(figure, "class=\"published\"><title>", "</title>") {
            let known = named.iter().any(|series| point.contains(series)) || from_elsewhere(point).is_some();
            assert!(known && !named.is_empty(), "{id}: {point}");
            points += 1;
        }
    }
    assert!(points > 40, "{points}");
}

#[test]
fn no_two_figures_have_one_title_or_one_id() {
    let pipe = Registry::standard().experiment("bw-pipe").expect("embedded");
    let mine = Experiment { name: "my-pipe".into(), ..pipe.clone() };
    let twice = runs_of(vec![pipe, mine]);
    for html in [invention().html(), Fixture::new(twice).html()] {
        let all = figures(&html);
        let titles: Vec<&str> = all.iter().map(|f| between(f.1, "<h3>", "</h3>")[0]).collect();
        for (i, title) in titles.iter().enumerate() {
            assert!(!titles[..i].contains(title), "{title} is there twice");
            assert!(all[..i].iter().all(|other| other.0 != all[i].0), "{} is there twice", all[i].0);
        }
        assert!(all.len() > 8);
    }
}

#[test]
fn all_text_is_of_one_size_as_all_drawings_are_as_wide() {
    let html = invention().html();
    for (id, figure) in figures(&html) {
        let widths: Vec<&str> =
            drawings(figure).iter().map(|d| between(d, "viewBox=\"0 0 ", " ")[0]).collect();
        assert_eq!(widths, ["720", "326"], "{id}");
    }
}

#[test]
fn every_link_leads_somewhere_and_every_difference_to_its_reason() {
    // Nearly all of what is made up differs.
    let Fixture { of, .. } = invention();
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    of.write(PendingDir::create(&out).expect("begun")).expect("written");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut linking: Vec<PathBuf> = of.pages().iter().map(|page| out.join(&page.path)).collect();
    let drawings =
        fs::read_dir(out.join("figures")).expect("figures").map(|entry| entry.expect("one").path());
    linking.extend(drawings.filter(|path| path.extension().is_some_and(|ending| ending == "svg")));
    for path in linking {
        let text = read(&path);
        let ids: Vec<&str> = between(&text, " id=\"", "\"");
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[..i].contains(id), "{}: {id} is there twice", path.display());
        }
        for target in between(&text, "href=\"", "\"") {
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            let named = id.is_empty() || read(&to).contains(&format!(" id=\"{id}\""));
            assert!(to.is_file() && named, "{}: nothing is at {target}", path.display());
        }
    }
    let html = invention().html();
    let wrong = of.comparisons.iter().filter(|c| !c.agrees).count();
    assert!(wrong > 20);
    assert_eq!(html.matches("✗ differs").count(), wrong);
    let links = html.matches("<a class=\"no\" href=\"#differs-").count();
    assert_eq!(links, wrong, "each of them is a link");
    for difference in of.differences() {
        assert!(
            !difference.why.is_empty() && difference.why.iter().all(|text| text.len() > 40),
            "{difference:?}"
        );
        let place = html.find(&format!("<section id=\"{}\">", difference.anchor)).expect("a section");
        let section = &html[place..place + html[place..].find("</section>").expect("closed")];
        assert!(between(section, "<p>", "</p>").iter().all(|text| !text.is_empty()), "{section}");
        assert!(section.contains("<p>"), "{section}");
    }
    let facts = between(&html, "<div class=\"facts\">", "</div>")[0];
    assert_eq!(facts.matches("<b>").count(), facts.matches("<a href=\"").count(), "a tile without a link");
}

#[test]
fn what_is_known_to_differ_is_explained_as_in_the_caveats() {
    let plain = |text: &str| text.replace("**", "").split_whitespace().collect::<Vec<_>>().join(" ");
    let caveats = plain(include_str!("../../../../book/src/caveats.md"));
    let Fixture { of, .. } = invention();
    let reasons: Vec<&String> =
        of.papers.values().flat_map(|paper| &paper.numbers).filter_map(|n| n.otherwise.as_ref()).collect();
    assert_eq!(reasons.len(), 43);
    for reason in reasons {
        assert!(caveats.contains(&plain(reason)), "not in book/src/caveats.md: {reason}");
    }
}

#[test]
fn a_run_of_ones_own_is_not_called_a_reproduction() {
    let Fixture { of: built_in, .. } = invention();
    assert!(built_in.own().is_empty());
    assert!(invention().page("report.html").contains("<h1>Moving pages, not bytes: the reproduction</h1>"));
    let mut changed = Registry::standard().experiment("null-read").expect("embedded");
    changed.file.matrix[0].machines = vec!["today".into()];
    assert_eq!(
        runs_of(vec![changed.clone()]).own(),
        ["null-read"],
        "of a name that is built in, but not as it is"
    );
    let fixture = Fixture::new(runs_of(vec![Experiment { name: "mine".into(), ..changed }]));
    assert_eq!(fixture.of.own(), ["mine"]);
    let html = fixture.page("report.html");
    let head = &html[..html.find("<main>").expect("a page")];
    assert!(head.contains("a run of one") && head.contains("mine"), "{head}");
    let heading = between(head, "<h1>", "</h1>")[0].to_owned() + between(head, "<title>", "</title>")[0];
    assert!(!heading.contains("reproduction"), "{heading}");
}

#[test]
fn the_answer_comes_first_and_long_tables_are_folded_away() {
    let Fixture { of, .. } = invention();
    let index = invention().page("report.html");
    let body = &index[index.find("<main>").expect("a page")..];
    let place = |text: &str| body.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert_eq!(figures(body).first().map(|f| f.0), Some("pays"));
    assert!(
        place("<figure id=\"pays\">") < place("id=\"papers\"")
            && place("id=\"papers\"") < place("id=\"found\"")
    );
    assert!(body.matches("<tr>").count() < 100, "the index has no long tables");
    // Every number that is compared is a mark, and what differs is named and leads to its reason.
    let mut answers = String::new();
    for name in of.papers.keys() {
        let html = invention().page(&format!("papers/{name}.html"));
        let body = &html[html.find("<main>").expect("a page")..];
        let first = figures(body)[0];
        assert_eq!(first.0, format!("answer-{name}"));
        answers += drawings(first.1)[0];
        folded(body);
    }
    folded(body);
    folded(invention().page("constants.html"));
    let numbers = of.comparisons.iter().filter(|c| c.ratio.is_some()).count();
    assert_eq!(answers.matches(" here, ").count(), numbers);
    // Checks of the model are in tables, and not among the answers.
    for c in of.comparisons.iter().filter(|c| !c.agrees && c.standing != Standing::Construction) {
        assert!(answers.contains(&format!("<a href=\"#differs-{}\">", c.published)), "{}", c.published);
    }
    assert!(index.contains("hashchange"), "what a link names is opened");
}

/// Long tables are folded away.
fn folded(body: &str) {
    let mut open = 0;
    for piece in body.split("<details").skip(1) {
        open += 1;
        open -= piece.matches("</details>").count();
        let after = piece.rsplit("</details>").next().unwrap_or("");
        assert!(
            open > 0 || !after.contains("<table"),
            "a table in the open: {}",
            &after[..200.min(after.len())]
        );
    }
}

#[test]
fn every_rule_is_judged_when_all_runs_are_made_and_what_is_left_out_is_told() {
    let Fixture { of, .. } = invention();
    let asked: usize =
        of.experiments.iter().flat_map(|e| &e.file.compare).map(|rule| rule.machines.len()).sum();
    assert_eq!((of.comparisons.len(), of.not_compared()), (asked, 0));
    assert!(!invention().html().contains("could not be made"));

    let choices = Choices { quick: true, ..Choices::default() };
    let experiment = Arc::new(Registry::standard().experiment("uvm-pipe").expect("embedded"));
    let plan = matrix(&Registry::standard(), &experiment, choices).expect("a matrix");
    let runs = plan.iter().enumerate().map(|(n, spec)| invented(n, spec)).collect();
    let of = judged(&plan, runs, choices).expect("its papers are there");
    let shapes = of.comparisons.iter().filter(|c| c.reading.as_ref().is_some_and(|r| r.contains(" to ")));
    assert_eq!(shapes.count(), 0, "no curve is whole");
    assert!(of.not_compared() > 0 && !of.comparisons.is_empty());
    let sentence = format!("{} comparisons with published statements could not be made", of.not_compared());
    assert!(Fixture::new(of).html().contains(&sentence));
}

#[test]
fn a_statement_in_words_says_what_was_tested_and_which_test_fails() {
    let fixture = Fixture::new(reproduction(|run| {
        let size = |size: &str| run.record.has_setting(&format!("size_bytes={size}"));
        let bandwidth = if size("4096") {
            40.0
        } else if size("8192") {
            60.0
        } else {
            26.0
        };
        run.record.results.insert("bandwidth_mb_s".into(), bandwidth);
    }));
    let of = |test: &str| {
        let meant = |c: &&pageferry_lab::judge::Comparison| {
            c.reading.as_deref() == Some(test) && c.experiment == "uvm-pipe"
        };
        fixture.of.comparisons.iter().find(meant).expect("tested")
    };
    let falls = of("copy falls, 4K to 2M, within 10 %");
    assert_eq!((falls.agrees, falls.ours.as_str()), (false, "40 at 4K, 60 MB/s at 8K"));
    assert!(of("copy is level, 512K to 2M, within 10 %").agrees);
    let html = fixture.html().replace("&#x2f;", "/");
    assert!(html.contains(
        "40 at 4K, 60 MB/s at 8K<br><span class=\"aside\">uvm-pipe: copy falls, 4K to 2M, within 10 %"
    ));
}

#[test]
fn all_calibrated_constants_are_listed_with_what_they_were_fitted_to() {
    let Fixture { of, .. } = invention();
    let html = invention().html();
    for constant in of.calibrated() {
        assert!(of.published(&constant.against).is_some(), "{} is fitted to an unknown number", constant.key);
        assert!(html.contains(&constant.key));
        let standing = of.comparisons.iter().find(|c| c.published == constant.against).map(|c| c.standing);
        assert!(standing.is_none_or(|s| s == Standing::Calibrated), "{}", constant.against);
    }
}

#[test]
fn broken_laws_are_the_first_thing_told() {
    let of = reproduction(|run| {
        let r = &run.record;
        if (r.experiment.as_str(), r.machine.as_str(), r.kernel.as_str()) == ("bw-pipe", "xeon-htt", "sf_buf")
        {
            run.record.laws.push(Law {
                name: "no leaks".into(),
                held: false,
                fault: Some("3 frames".into()),
            });
        }
    });
    assert_eq!(of.broken().len(), 1);
    let html = Fixture::new(of).html();
    let sentence = html.find("bw-pipe on xeon-htt under sf_buf: no leaks: 3 frames").expect("sentence");
    assert!(sentence < html.find("<main>").expect("the first page"));
}

#[test]
fn a_part_of_the_runs_is_reported_too() {
    let choices = Choices { quick: true, ..Choices::default() };
    let experiment = Arc::new(Registry::standard().experiment("bw-pipe").expect("embedded"));
    let plan: Vec<_> =
        matrix(&Registry::standard(), &experiment, choices).expect("a matrix").into_iter().take(2).collect();
    let runs = plan.iter().enumerate().map(|(n, spec)| invented(n, spec)).collect();
    let of = judged(&plan, runs, choices).expect("its papers are there");
    let html = Fixture::new(of).html();
    assert!(html.contains("A quick run"));
    // What comes out, and four of bandwidth; and three of a real host.
    assert_eq!(drawings(&html).len(), 16);
}

#[test]
fn the_numbers_are_tidy_and_leave_the_host_out() {
    let of = reproduction(|_| ());
    let text = results_csv(of.records(), &Registry::standard().dictionary());
    assert!(text.starts_with("run,metric,unit,value\n1,"), "{}", &text[..100]);
    assert!(text.lines().any(|line| line == "1,bandwidth_mb_s,MB/s,400"));
    let slower = reproduction(|run| run.host.wall_ms *= 2.0);
    assert_eq!(of.json(), slower.json());
    assert_eq!(text, results_csv(slower.records(), &Registry::standard().dictionary()));
    assert_ne!(of.host_json(), slower.host_json());
}

/// A column of whole numbers has nothing else in it, one of numbers nothing but these, or nothing where there is none.
#[test]
fn every_column_of_a_table_has_one_type_and_the_tables_fit_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    reproduction(|_| ()).write(PendingDir::create(&out).expect("begun")).expect("written");
    let read = |name: &str| {
        let mut table = csv::Reader::from_path(out.join(name)).expect("it is there");
        let head: Vec<String> = table.headers().expect("a head").iter().map(str::to_owned).collect();
        let rows: Vec<csv::StringRecord> =
            table.records().map(|row| row.expect("as long as the head")).collect();
        assert!(!rows.is_empty(), "{name} is empty");
        (head, rows)
    };
    let columns = [
        ("results.csv", &["run"][..], &["value"][..]),
        ("runs.csv", &["run", "seed"], &[]),
        (
            "published.csv",
            &["repeats", "repeats_agree"],
            &["here", "published_value", "ratio", "here_low", "here_high"],
        ),
        ("crossovers.csv", &[], &["from", "gain_at_largest"]),
        ("dictionary.csv", &[], &[]),
    ];
    for (name, integers, floats) in columns {
        let (head, rows) = read(name);
        for (i, column) in head.iter().enumerate() {
            let cells = rows.iter().map(|row| &row[i]);
            if integers.contains(&column.as_str()) {
                cells.for_each(|cell| assert!(cell.parse::<u64>().is_ok(), "{name}, {column}: {cell}"));
            } else if floats.contains(&column.as_str()) {
                let is_whole = |cell: &str| name != "results.csv" && !cell.contains(['.', 'e']);
                let finite = |cell: &str| cell.parse::<f64>().is_ok_and(f64::is_finite);
                let fits = |cell: &str| cell.is_empty() || finite(cell) && !is_whole(cell);
                cells.for_each(|cell| assert!(fits(cell), "{name}, {column}: {cell}"));
            } else {
                let words = cells.filter(|cell| !cell.is_empty() && cell.parse::<f64>().is_err()).count();
                assert!(words > 0, "{name}, {column} has no words");
            }
        }
    }
    let (_, rows) = read("results.csv");
    let mut seen = std::collections::BTreeSet::new();
    assert!(rows.iter().all(|row| seen.insert((row[0].to_owned(), row[1].to_owned()))), "a metric twice");
    let runs = read("runs.csv").1.len();
    let numbers: std::collections::BTreeSet<&str> = rows.iter().map(|row| &row[0]).collect();
    assert_eq!(numbers.len(), runs);
    let mut names: Vec<String> =
        Registry::standard().dictionary().into_iter().map(|entry| entry.metric).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "the dictionary has a metric twice");
}

#[test]
fn all_files_are_written_and_the_figures_stand_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let Fixture { of, .. } = invention();
    of.write(PendingDir::create(&out).expect("begun")).expect("written");
    for file in ["report.html", "results.json", "results.csv", "runs.csv", "dictionary.csv", "host.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let (mut figures, mut data) = (0, 0);
    for entry in fs::read_dir(out.join("figures")).expect("figures") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("readable");
        if path.extension().is_some_and(|ending| ending == "csv") {
            assert!(path.with_extension("svg").is_file(), "{}", path.display());
            let mut table = csv::Reader::from_reader(text.as_bytes());
            let rows: Result<Vec<_>, _> = table.records().collect();
            assert!(!rows.expect("as long as the head").is_empty(), "{} is empty", path.display());
            data += 1;
            continue;
        }
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        assert!(document.descendants().any(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "style"))));
        figures += 1;
    }
    assert_eq!((figures, data), (self::figures(&invention().html()).len(), figures));
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("results.json")).expect("readable")).expect("JSON");
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(of.runs.len()));
}

#[test]
fn every_user_of_mappings_is_shown_under_every_scheme_then_and_now() {
    let of = reproduction(|run| {
        if run.record.experiment == "ephemeral-schemes" {
            let cycles = if run.record.kernel == "original" { 3000.0 } else { 2000.0 };
            let parts = ["elapsed", "local", "remote", "mapping"];
            run.record.results.extend(parts.map(|part| (format!("{part}_cycles_per_page"), cycles)));
        }
    });
    let rows = of.scheme_rows();
    assert_eq!(rows.len(), of.records().filter(|r| r.experiment == "ephemeral-schemes").count());
    for user in ["memory-disk", "exec", "ptrace", "vnode-pager", "pipe", "socket"] {
        for machine in [
            "xeon-up",
            "xeon-htt",
            "xeon-mp",
            "xeon-mp-htt",
            "opteron-mp",
            "sh7751r",
            "ultrasparc-iie",
            "alpha-21264",
            "itanium2",
            "today",
        ] {
            let schemes: Vec<_> = rows.iter().filter(|r| r.user == user && r.machine == machine).collect();
            for kernel in ["original", "vmem", "per-process", "sf_buf"] {
                let row = schemes.iter().find(|row| row.scheme == kernel);
                let row = row.unwrap_or_else(|| panic!("{user} on {machine} under {kernel}"));
                assert_eq!(row.gain, if kernel == "original" { "" } else { "+50 %" });
            }
        }
        // What is now is last.
        let machines: Vec<_> = rows.iter().filter(|r| r.user == user).map(|r| r.machine.as_str()).collect();
        assert!(
            machines.iter().skip_while(|machine| **machine != "today").all(|machine| *machine == "today")
        );
    }
    assert!(Fixture::new(of).html().contains(&format!("<span>{} of them</span>", rows.len())));
}

/// Numbers at an axis that lie upon each other cannot be read.
#[test]
fn the_numbers_of_an_answers_axis_have_room() {
    let html = invention().html();
    let answers = figures(&html).into_iter().filter(|f| f.0 == "pays" || f.0.starts_with("answer-"));
    let mut drawn = 0;
    for drawing in answers.flat_map(|f| drawings(f.1)) {
        let attribute = |text: &str, name: &str| -> f64 {
            between(text, &format!(" {name}=\""), "\"")[0].parse().expect("a number")
        };
        let mut places: Vec<(f64, f64)> = between(drawing, "<text", ">")
            .into_iter()
            .filter(|text| text.contains("class=\"tick\"") && text.contains("text-anchor=\"middle\""))
            .map(|text| (attribute(text, "y"), attribute(text, "x")))
            .collect();
        places.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        for pair in places.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[1].1 - pair[0].1 >= 30.0, "{pair:?}");
        }
        drawn += places.len();
    }
    assert!(drawn > 10, "{drawn}");
}
