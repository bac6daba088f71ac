//! What is published, beside what comes out: the whole of it, so that no change loses a number unnoticed.

use pageferry_lab::Registry;
use pageferry_lab::files::Experiment;
use pageferry_lab::judge::{Statement, statements};
use pageferry_lab::run::{Choices, RunSpec, Silent, execute, matrix_repeated};
use std::sync::Arc;

/// What the papers' files say comes out otherwise does, and nothing else; and the kernel chooses worse than the best
/// where the experiments' files say so. What is judged on several repeats takes too
/// long for a test that is not optimised: `reproduce --check` looks at that, too.
#[test]
fn all_numbers_come_out_as_the_papers_files_say_and_the_kernel_chooses_well() {
    let choices = Choices::default();
    // Of others nothing is published, and in them the kernel chooses nothing: a quick report makes their runs, and
    // tests the laws.
    let chooses =
        |e: &Experiment| e.file.curves.iter().flat_map(|c| &c.lines).any(|line| !line.best_of.is_empty());
    let judged = |e: &Experiment| !e.file.compare.is_empty() && !e.file.is_repeated();
    let registry = Registry::standard();
    let experiments = registry.experiments().expect("embedded").into_iter();
    let experiments: Vec<Experiment> = experiments.filter(|e| judged(e) || chooses(e)).collect();
    let repeated: Vec<String> =
        experiments.iter().filter(|e| e.file.is_repeated()).map(|e| e.name.clone()).collect();
    let once = |e| matrix_repeated(&registry, &Arc::new(e), choices, 1).expect("a matrix");
    let plan: Vec<RunSpec> = experiments.into_iter().flat_map(once).collect();
    let runs = execute(&plan, 0, &Silent).expect("every run is made");
    let of = registry.judged(&plan, runs, choices).expect("its papers are there");
    assert_eq!(of.broken(), []);
    assert_eq!(of.not_compared(), 0);

    let all = statements(&of.comparisons);
    let numbers = all.iter().filter(|s| s.in_numbers).count();
    assert!(numbers > 15 && all.len() > numbers + 20, "{numbers} numbers of {} statements", all.len());
    let once = |s: &&Statement| s.rows.iter().all(|row| !repeated.contains(&row.experiment));
    let unexpected: Vec<Statement> = of.unexpected().into_iter().filter(|s| once(&s)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert!(all.iter().filter(once).count() > 60);

    // What reasons quote of experiments with several repeats is left to `reproduce --check`, as above.
    let quotes = of.wrong_quotes().into_iter().filter(|quote| !repeated.contains(&quote.experiment));
    let wrong: Vec<String> = quotes.map(|quote| quote.to_string()).collect();
    assert_eq!(wrong, [""; 0], "what reasons say is what the runs give");

    let unexpected: Vec<_> = of.unexpected_choices().collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert!(of.chosen.len() > 100, "{} choices", of.chosen.len());
}
