//! What a report says in words of its own: titles, the order of papers, and units. It follows from the runs, and so
//! other runs must change it.

use crate::report::{Fixture, between, drawings, figures, invention, reproduction, runs_of};
use pageferry_lab::Registry;
use pageferry_lab::judge::Standing;

/// Papers are in order of weight, and what is judged of a paper follows from what was run.
#[test]
fn papers_are_in_order_of_weight() {
    let order = |fixture: &Fixture| -> Vec<String> {
        let index = fixture.page("report.html");
        let papers = &index[index.find("id=\"papers\"").expect("papers")..];
        between(papers, "<h3><a href=\"papers/", ".html").into_iter().map(str::to_owned).collect()
    };
    assert_eq!(order(invention()), ["sf-buf", "uvm", "page-flip", "ppc-bat", "sh4-tlb"]);
    let some = ["bw-pipe", "uvm-pipe", "null-read", "null-write", "ping-pong"];
    let some = some.map(|name| Registry::standard().experiment(name).expect("embedded"));
    let fixture = Fixture::new(runs_of(some.to_vec()));
    assert_eq!(order(&fixture), ["uvm", "sf-buf"]);
    let judged: Vec<usize> = (fixture.pages.iter())
        .filter(|page| page.path.starts_with("papers/"))
        .map(|page| between(&page.html, "<tbody>\n<tr>", "</tbody>").len())
        .collect();
    assert!(judged[0] > judged[1], "{judged:?}");
}

/// The title of the answer says what the runs say.
#[test]
fn the_answer_is_found_in_the_runs() {
    let title = |factor: f64| {
        let of = reproduction(|run| {
            let r = &mut run.record;
            // What moves pages is so many times as fast as what copies, and today half that.
            let moves = r.settings.values().any(|word| {
                ["loan", "transfer", "pass", "both", "map", "flip", "zero"]
                    .contains(&word.to_string().as_str())
            });
            let today = if r.machine == "today" { 0.5 } else { 1.0 };
            for name in ["bandwidth_mb_s", "busy_bandwidth_mb_s", "efficiency_mbit_per_cpu_percent"] {
                r.results.insert(name.into(), if moves { 100.0 * factor * today } else { 100.0 });
            }
        });
        let index = Fixture::new(of).page("report.html").to_owned();
        between(&index, "<figure id=\"pays\">", "</figure>")[0].to_owned()
    };
    let said = |title: &str| between(title, "<h3>", "</h3>")[0].to_owned();
    let numbers = |title: &str| -> Vec<usize> {
        said(title).split([' ', ';', ',']).filter_map(|word| word.parse().ok()).collect()
    };
    let (slow, between, fast) = (title(0.5), title(1.5), title(3.0));
    let (slow, between, fast) = (numbers(&slow), numbers(&between), numbers(&fast));
    assert!(slow[0] < between[0] && slow[1] == between[1], "{slow:?} {between:?}");
    assert!(between[0] == fast[0] && between[2] < fast[2], "{between:?} {fast:?}");
}

/// The title of the figure `id` of a report in which what moves pages is so many times as fast as what copies.
fn title_of(id: &str, factor: f64) -> String {
    let of = reproduction(|run| {
        let r = &mut run.record;
        let moves = r.settings.values().any(|word| ["loan", "transfer"].contains(&word.to_string().as_str()));
        r.results.insert("bandwidth_mb_s".into(), if moves { 100.0 * factor } else { 100.0 });
    });
    let html = Fixture::new(of).html();
    let figure = figures(&html).into_iter().find(|figure| figure.0 == id).expect("a figure").1;
    between(figure, "<h3>", "</h3>")[0].to_owned()
}

#[test]
fn a_figures_title_says_what_its_runs_have_found() {
    let (slow, fast) = (title_of("null-write-pentium-pro", 0.5), title_of("null-write-pentium-pro", 2.0));
    assert_eq!(fast, "Writing to a null socket, pentium-pro: loan above copy everywhere");
    assert_eq!(slow, "Writing to a null socket, pentium-pro: loan above copy nowhere");
}

#[test]
fn what_comes_out_of_a_paper_is_counted() {
    let title = |fixture: &Fixture| {
        let html = fixture.page("papers/uvm.html").to_owned();
        let figure = figures(&html)[0];
        assert_eq!(figure.0, "answer-uvm");
        between(figure.1, "<h3>", "</h3>")[0].to_owned()
    };
    let of = |fixture: &Fixture, in_numbers: bool| {
        let paper = &fixture.of.papers["uvm"];
        let all = pageferry_lab::judge::statements(&fixture.of.comparisons);
        let of: Vec<_> = (all.iter())
            .filter(|s| s.standing == Standing::Predicted && s.in_numbers == in_numbers)
            .filter(|s| paper.number(&s.published).is_some())
            .map(|s| s.agrees)
            .collect();
        (of.iter().filter(|agrees| **agrees).count(), of.len())
    };
    let none =
        Fixture::new(reproduction(|run| run.record.results.values_mut().for_each(|value| *value = 1e6)));
    for fixture in [invention(), &none] {
        let (numbers, words) = (of(fixture, true), of(fixture, false));
        let expected = format!(
            "UVM paper: {} of {} numbers and {} of {} statements in words come out",
            numbers.0, numbers.1, words.0, words.1
        );
        // The title counts what the index counts.
        let covered = fixture.of.coverage(&fixture.of.papers["uvm"]);
        assert_eq!((numbers.0 + words.0, numbers.1 + words.1), (covered.agree, covered.judged()));
        assert_eq!(title(fixture), expected);
    }
    assert_ne!(title(invention()), title(&none));
}

/// Rates are in MB/s, and times of operations in microseconds, in all figures, legends, tables and comparisons.
#[test]
fn a_quantity_has_one_unit_in_the_whole_report() {
    let fixture = invention();
    let mut axes = Vec::new();
    for (id, figure) in figures(&fixture.html()) {
        for drawing in drawings(figure) {
            for axis in between(drawing, "class=\"axis\"", "</text>") {
                let words = axis.split_once('>').expect("words").1.trim_end_matches(" (log)");
                let unit = words.rsplit_once(", ").map_or("", |(_, unit)| unit).to_owned();
                assert!(!["us", "ns", "ms", "microseconds"].contains(&unit.as_str()), "{id}: {words}");
                assert!(!unit.contains("Mbit"), "{id}: {words}");
                axes.push(unit);
            }
        }
    }
    for unit in ["MB/s", "MB/s/%", "µs", "cycles"] {
        assert!(axes.iter().any(|axis| axis == unit), "no axis in {unit}");
    }
    let words =
        |text: &str| text.split(' ').any(|word| ["us", "ns"].contains(&word) || word.contains("Mbit"));
    for c in &fixture.of.comparisons {
        assert!(!words(&c.ours) && !words(&c.theirs), "{}: {}, {}", c.published, c.ours, c.theirs);
    }
    for row in pageferry_report::Report::pays_rows(&fixture.of) {
        assert!(!words(&row.then) && !words(&row.now), "{row:?}");
    }
}

/// What is in other units in the records is converted, and not only called otherwise.
#[test]
fn throughput_is_drawn_as_an_eighth_of_its_megabits() {
    let of = reproduction(|run| {
        run.record.results.insert("throughput_mbit_s".into(), 800.0);
    });
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    pageferry_report::Report::write_to(&of, &out).expect("written");
    let read = |file: &str| std::fs::read_to_string(out.join(file)).expect("written");
    let data = read("figures/netperf-xeon-mp.csv");
    assert!(data.lines().next().is_some_and(|head| head.contains("throughput (MB/s)")), "{data}");
    assert!(data.lines().skip(1).all(|row| row.split(',').rev().nth(1) == Some("100")), "{data}");
    // Tables keep what was measured.
    assert!(read("results.csv").contains(",throughput_mbit_s,Mbit/s,800\n"));
}

/// A median has a whisker where tables tell its interval, and only there; the legend says what it is.
#[test]
fn repeats_that_differ_have_whiskers() {
    let of = reproduction(|run| {
        let repeat = run.record.seed as f64;
        let step = if run.record.machine == "xeon-mp" { 80.0 } else { 1e-9 };
        run.record.results.insert("throughput_mbit_s".into(), 800.0 + step * repeat);
    });
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    pageferry_report::Report::write_to(&of, &out).expect("written");
    let read = |file: &str| std::fs::read_to_string(out.join(file)).expect("written");
    let (differ, same) = (read("figures/netperf-xeon-mp.svg"), read("figures/netperf-xeon-up.svg"));
    assert!(differ.contains(r#"class="whisker s-"#) && differ.contains("interval of the median"), "{differ}");
    assert!(!same.contains(r#"class="whisker"#) && !same.contains("interval of the median"), "{same}");
    let data = read("figures/netperf-xeon-mp.csv");
    let mut lines = data.lines();
    assert!(
        lines.next().is_some_and(|head| head.ends_with(",published,interval_low,interval_high")),
        "{data}"
    );
    assert!(lines.all(|row| row.ends_with(",130,,110,150")), "of seeds 1 to 5: {data}");
    assert!(!read("figures/netperf-xeon-up.csv").contains("interval"));
    assert!(
        read("report.html").contains("an interval that holds the true median")
            || read("papers/sf-buf.html").contains("an interval that holds the true median")
    );
}
