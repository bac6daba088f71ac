//! Every mechanism explains itself, and what is counted beside its steps is what it promises.

use pageferry_lab::LabError;
use pageferry_teach::explain::{self, Explanation, Field, Step};
use std::collections::BTreeSet;

fn explanation(name: &str) -> Explanation {
    explained(name, None, None)
}

fn explained(name: &str, machine: Option<&str>, kernel: Option<&str>) -> Explanation {
    let mechanism = explain::find(name).expect("there is such a mechanism");
    let explanation = explain::explain(mechanism, machine, kernel).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(explanation.broken(), Vec::<String>::new(), "{name}");
    explanation
}

/// The only step whose words contain `part`.
fn step<'a>(explanation: &'a Explanation, part: &str) -> &'a Step {
    let found: Vec<_> = explanation.steps.iter().filter(|step| step.what.contains(part)).collect();
    assert_eq!(found.len(), 1, "{}: steps with `{part}`", explanation.name);
    found[0]
}

fn counts(explanation: &Explanation, part: &str, expected: &[(&str, u64)]) {
    let step = step(explanation, part);
    for (counter, count) in expected {
        assert_eq!(step.count(counter), *count, "{}: {counter} of `{}`", explanation.name, step.what);
    }
}

#[test]
fn every_mechanism_explains_itself_on_its_machine() {
    let mut names = BTreeSet::new();
    for mechanism in explain::all() {
        assert!(names.insert(mechanism.name), "{} twice", mechanism.name);
        assert!(!mechanism.source.is_empty() && !mechanism.title.is_empty());
        let explanation = explanation(mechanism.name);
        assert!(explanation.steps.len() >= 3, "{}: few steps", mechanism.name);
        assert!(
            explanation.steps.iter().all(|step| step.busy_cycles > 0),
            "{}: {:#?}",
            mechanism.name,
            explanation.steps
        );
        assert!(explanation.steps.iter().all(|s| s.by_cause.values().sum::<u64>() == s.busy_cycles));
    }
    assert!(names.len() >= 12);
}

#[test]
fn what_is_told_does_not_change() {
    assert_eq!(explanation("loan"), explanation("loan"));
}

#[test]
fn a_wrong_name_gets_the_nearest() {
    let error = explain::find("lona").expect_err("no such mechanism");
    assert!(matches!(&error, LabError::Unknown { nearest: Some(name), .. } if name == "loan"), "{error}");
}

#[test]
fn a_copy_moves_every_byte_twice_and_a_loan_none() {
    let copy = explanation("copy");
    counts(&copy, "sender sends", &[("bytes_copied", 16384), ("clusters", 4), ("page_faults", 0)]);
    counts(&copy, "no fault", &[("page_faults", 0)]);
    counts(&copy, "receiver receives", &[("bytes_copied", 16384)]);
    for (machine, kernel) in [(None, None), (Some("xeon-mp"), None), (Some("opteron-mp"), Some("sf_buf"))] {
        let loan = explained("loan", machine, kernel);
        counts(
            &loan,
            "sends four pages by loan",
            &[("bytes_copied", 0), ("pages_lent", 4), ("frames_wired", 4)],
        );
        counts(&loan, "no fault", &[("page_faults", 0)]);
        // One page is copied for the writer, and nothing for the others.
        counts(&loan, "breaks the loan", &[("page_faults", 1), ("cow_copies", 1), ("frames_allocated", 1)]);
        counts(
            &loan,
            "the loans end",
            &[("bytes_copied", 16384), ("frames_unwired", 4), ("frames_freed", 1)],
        );
        counts(&loan, "loan is over", &[("page_faults", 1), ("cow_copies", 0), ("frames_allocated", 0)]);
    }
}

#[test]
fn a_transfer_gives_the_pages_and_anflush_frees_them() {
    let transfer = explanation("transfer");
    let expected = [("bytes_copied", 0), ("pages_donated", 4), ("transfer_bytes_copied", 0)];
    counts(&transfer, "receives by transfer", &expected);
    counts(&transfer, "nothing is copied", &[("cow_copies", 0)]);
    counts(&transfer, "anflush frees", &[("frames_freed", 4)]);
    let anflush = explanation("anflush");
    let cost = |part| step(&anflush, part).busy_cycles;
    assert!(cost("second transfer") < cost("first transfer"), "the place is found");
    counts(&anflush, "reads as zero", &[("zero_fills", 1)]);
}

#[test]
fn passing_copies_only_what_is_written_of_a_copy() {
    let pass = explanation("pass");
    for part in ["imports a donation", "imports a copy", "imports shared memory"] {
        counts(&pass, part, &[("bytes_copied", 0), ("cow_copies", 0), ("page_faults", 0)]);
    }
    counts(&pass, "one page is copied", &[("cow_copies", 1)]);
    counts(&pass, "the exporter sees the write", &[("cow_copies", 0)]);
    let quick = explanation("quick-ref");
    counts(&quick, "reads a word", &[("bytes_copied", 8), ("cow_copies", 0)]);
    counts(&quick, "a breakpoint", &[("bytes_copied", 8), ("cow_copies", 1)]);
    counts(&quick, "sets another", &[("bytes_copied", 8), ("cow_copies", 0)]);
}

#[test]
fn layers_are_copied_a_page_at_a_time() {
    let cow = explanation("cow");
    counts(&cow, "no frame", &[("frames_allocated", 0)]);
    counts(&cow, "fills them", &[("page_faults", 4), ("zero_fills", 4)]);
    counts(&cow, "forks", &[("cow_copies", 0), ("tlb_invalidations_local", 4)]);
    counts(&cow, "reads all four", &[("cow_copies", 0)]);
    counts(&cow, "writes to the first", &[("page_faults", 1), ("cow_copies", 1)]);
    counts(&cow, "alone with it", &[("page_faults", 1), ("cow_copies", 0)]);
    let promotion = explanation("promotion");
    counts(&promotion, "is promoted", &[("page_faults", 1), ("cow_copies", 1)]);
    counts(&promotion, "its own", &[("page_faults", 0)]);
    let pageout = explanation("pageout");
    let out = step(&pageout, "the daemon makes room");
    assert!(out.count("page_outs") >= 256, "{out:#?}");
    assert!(step(&pageout, "from its swap slot").count("page_ins") >= 1);
    counts(&pageout, "the page is mapped", &[("page_faults", 0), ("page_ins", 0)]);
}

#[test]
fn hits_invalidate_nothing_and_ranges_need_one_shootdown() {
    let sf_buf = explanation("sf_buf");
    let miss = [("ephemeral_misses", 1), ("tlb_invalidations_local", 1), ("shootdowns", 0)];
    counts(&sf_buf, "A fifth page", &miss);
    let hit = [("ephemeral_hits", 1), ("tlb_invalidations_local", 0), ("shootdowns", 0)];
    counts(&sf_buf, "nothing to invalidate", &hit);
    counts(&sf_buf, "now the others are", &[("ephemeral_hits", 1), ("shootdown_ipis", 1)]);
    counts(&sf_buf, "all have been told", &hit);
    let all = [("ephemeral_misses", 1), ("tlb_invalidations_local", 1), ("shootdown_ipis", 1)];
    counts(&sf_buf, "every CPU is told", &all);
    let shootdown = explanation("shootdown");
    counts(&shootdown, "on this CPU", &[("tlb_invalidations_local", 1), ("shootdown_ipis", 0)]);
    counts(&shootdown, "on all other CPUs", &[("tlb_invalidations_local", 0), ("shootdown_ipis", 1)]);
    let run = [("tlb_invalidations_local", 16), ("tlb_invalidations_remote_issued", 16), ("shootdowns", 1)];
    counts(&shootdown, "mapped as one run", &run);
    counts(&shootdown, "of its own", &[("tlb_invalidations_local", 16), ("shootdowns", 0)]);
    let four = explained("shootdown", Some("xeon-mp-htt"), None);
    counts(&four, "mapped as one run", &[("shootdowns", 1), ("shootdown_ipis", 3)]);
}

#[test]
fn a_large_write_is_copied_once() {
    let pipe = explanation("direct-pipe");
    counts(&pipe, "writer writes 4 KiB", &[("bytes_copied", 4096), ("pipe_buffered_writes", 1)]);
    counts(&pipe, "reads the 4 KiB", &[("bytes_copied", 4096)]);
    counts(
        &pipe,
        "writer writes 64 KiB",
        &[("bytes_copied", 0), ("pipe_direct_writes", 1), ("frames_wired", 16)],
    );
    let hits =
        [("bytes_copied", 65536), ("ephemeral_hits", 16), ("ephemeral_misses", 0), ("frames_unwired", 16)];
    counts(&pipe, "copies once", &hits);
}

/// The printed rule reads page A where C was asked for, and the oracle says so; the other invalidates once and reads C.
#[test]
fn the_accessed_bit_proves_less_than_is_printed() {
    let told = explanation("accessed-bit");
    assert_eq!(told.steps.len(), 6);
    let last = |rule: &str| {
        let steps: Vec<_> = told.steps.iter().filter(|step| step.what.starts_with(rule)).collect();
        assert_eq!(steps.len(), 3);
        steps[2]
    };
    let (printed, holds) = (last("As printed: "), last("As it holds: "));
    assert_eq!(printed.notes[0], "what it read is page A");
    assert!(printed.notes[1].starts_with("the oracle: Read of "), "{printed:?}");
    assert!(printed.notes[1].contains("used a stale translation"), "{printed:?}");
    assert_eq!(printed.count("tlb_invalidations_local"), 0);
    assert_eq!(holds.notes, ["what it read is page C"]);
    assert_eq!(holds.count("tlb_invalidations_local"), 1);
    for step in &told.steps {
        assert_eq!(step.count("shootdowns"), 0, "all mappings are private: {step:?}");
    }
    assert!(told.laws.iter().any(|law| law.name == "a stale translation is used under sf_buf-as-printed"));

    // Asked for by name, the unsafe kernel is held to the laws like any other.
    let mechanism = explain::find("accessed-bit").expect("there");
    let alone = explain::explain(mechanism, None, Some("sf_buf-as-printed")).expect("it runs");
    assert_eq!(alone.broken().len(), 1, "{:?}", alone.broken());
    assert_eq!(alone.steps.len(), 3);
}

#[test]
fn what_the_lesson_finds_has_the_numbers_of_its_run() {
    let finding = pageferry_teach::finding::accessed_bit().expect("it runs");
    assert!(finding.title.contains("as printed"));
    let text = finding.paragraphs.join("\n");
    assert!(text.contains("The oracle: Read of ") && text.contains("What it read is page A."), "{text}");
    assert!(text.contains("What it read is page C."), "{text}");
    assert!(text.contains("It costs 1 local invalidation where the printed rule has 0"), "{text}");
    assert!(!text.contains("As printed: "), "{text}");
}

/// The steps of the run whose words begin with `section`.
fn section<'a>(explanation: &'a Explanation, section: &str) -> &'a [Step] {
    let begins = |step: &Step| step.section.as_deref().is_some_and(|words| words.starts_with(section));
    let first = explanation.steps.iter().position(begins).unwrap_or_else(|| panic!("no run `{section}`"));
    let steps = &explanation.steps[first..];
    let next = steps[1..].iter().position(|step| step.section.is_some());
    &steps[..next.map_or(steps.len(), |next| next + 1)]
}

/// The numbers of a row of the table at the end.
fn row(explanation: &Explanation, words: [&str; 3]) -> Vec<u64> {
    let table = explanation.table.as_ref().expect("a table");
    let is_meant = |row: &&Vec<Field>| {
        words.iter().zip(row.iter()).all(|(word, field)| *field == Field::Word((*word).to_owned()))
    };
    let row = table.rows.iter().find(is_meant).unwrap_or_else(|| panic!("no row {words:?}: {table:#?}"));
    let numbers = row[words.len()..].iter().map(|field| match field {
        Field::Number(number) => *number,
        Field::Word(word) => panic!("{word} is no number"),
    });
    numbers.collect()
}

#[test]
fn blocks_take_no_entries_and_miss_nothing() {
    let told = explanation("bat");
    assert_eq!(told.machine, "ppc603 and ppc604");
    for (machine, entries, last) in [("ppc603", 64, "0xc1ffffff"), ("ppc604", 128, "0xc1ffffff")] {
        let pages = section(&told, &format!("{machine}, the kernel mapped by pages"));
        let blocks = section(&told, &format!("{machine}, the kernel mapped by blocks"));
        assert_eq!(pages.len(), blocks.len());
        assert_eq!((pages[0].count("kernel_tlb_misses"), pages[1].count("tlb_misses")), (8, 0));
        assert!(blocks[0].notes.iter().any(|note| note.contains(last)), "{:?}", blocks[0].notes);
        for (by_page, by_block) in pages.iter().zip(blocks) {
            assert_eq!(by_page.what, by_block.what);
            if !by_page.what.contains("What a block cannot do") {
                assert_eq!(by_block.count("kernel_tlb_misses"), 0, "{by_block:?}");
                assert!(by_block.notes[0].contains(", 0 of them the kernel's"), "{by_block:?}");
            }
        }
        let of = |steps: &[Step], part: &str| {
            let found = steps.iter().find(|step| step.what.contains(part));
            found.unwrap_or_else(|| panic!("a step with `{part}`")).count("tlb_misses")
        };
        for steps in [pages, blocks] {
            assert_eq!(of(steps, "as many as the TLB for data has"), entries);
            assert_eq!(of(steps, "they are all there"), 0);
        }
        assert!(of(pages, "all its pages again") > of(blocks, "all its pages again"), "{machine}");
        assert!(of(pages, "but that page again") > of(blocks, "but that page again"), "{machine}");
        for reload in ["slow", "fast"] {
            let by_page = row(&told, [machine, reload, "pages"]);
            let by_block = row(&told, [machine, reload, "blocks"]);
            // Misses, the kernel's, its share of entries, its most entries.
            assert!(by_page[0] > by_block[0] && by_page[1..4].iter().all(|n| *n > 0), "{by_page:?}");
            assert_eq!(by_block[1..4], [0; 3], "{machine} {reload}");
        }
    }
}

#[test]
fn a_miss_is_followed_to_its_end() {
    let told = explanation("refill");
    let is_main = |step: &&Step| !step.part;
    for steps in told.steps.split(|step| !step.part).filter(|parts| !parts.is_empty()) {
        assert!(steps.last().expect("some").what.contains("The load itself"), "{steps:#?}");
    }
    // The parts of a step have its cycles, and nothing is left out.
    let mut steps = told.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let mut parts = 0;
        while let Some(part) = steps.next_if(|step| step.part) {
            parts += part.busy_cycles;
        }
        assert!(parts == 0 || parts == step.busy_cycles, "{parts} cycles of {step:#?}");
    }
    assert_eq!(told.steps.iter().filter(is_main).count(), 5 * 4);
    for machine in ["ppc603", "ppc604"] {
        for reload in ["fast", "slow"] {
            for mapping in ["pages", "blocks"] {
                let [first, miss, warm_miss, within_miss, hit, warm_hit, within_hit] =
                    row(&told, [machine, reload, mapping])[..]
                else {
                    panic!("seven numbers")
                };
                assert!(first > miss && miss > hit, "{machine} {reload} {mapping}");
                assert!(warm_miss < miss && warm_hit < hit, "{machine} {reload} {mapping}");
                let nests = (machine, reload, mapping) == ("ppc603", "slow", "pages");
                assert_eq!(within_miss > 0, nests, "on a 604, hardware finds what the handler needs");
                assert_eq!(within_hit > 0, nests);
            }
        }
        let (slow, fast) = (row(&told, [machine, "slow", "blocks"]), row(&told, [machine, "fast", "blocks"]));
        assert!(slow[1] > fast[1], "{machine}");
    }
    let alone = explained("refill", Some("ppc604"), None);
    assert_eq!(alone.machine, "ppc604");
    assert_eq!(alone.table.expect("a table").rows.len(), 4);
    let mechanism = explain::find("refill").expect("there");
    assert!(explain::explain(mechanism, Some("xeon-up"), None).is_err(), "hardware walks page tables there");
}

#[test]
fn whole_pages_flip_and_everything_else_is_copied() {
    let flip = explanation("flip");
    counts(&flip, "a page by copy", &[("bytes_copied", 4096), ("pages_donated", 0)]);
    let moved =
        [("bytes_copied", 0), ("pages_donated", 2), ("frames_freed", 2), ("tlb_invalidations_local", 2)];
    counts(&flip, "two pages by flip", &moved);
    counts(&flip, "less than a page", &[("bytes_copied", 1000), ("pages_donated", 0)]);
    counts(&flip, "the rest of that page", &[("bytes_copied", 3096), ("pages_donated", 0)]);
    counts(&flip, "locked", &[("bytes_copied", 4096), ("pages_donated", 0)]);
}

#[test]
fn a_file_goes_to_the_card_without_a_copy_and_without_an_address_if_none_looks() {
    let sent = explanation("sendfile");
    let of_loans: Vec<&Step> = sent.steps.iter().filter(|step| step.what.contains("file by loan")).collect();
    assert!(of_loans.len() == 2 && of_loans.iter().all(|step| step.count("pages_lent") == 4));
    let rows = sent.table.expect("a table").rows;
    let mapped: Vec<Vec<Field>> = rows.iter().map(|row| row[2..].to_vec()).collect();
    assert_eq!(mapped[0], [4, 4, 4].map(Field::Number), "{rows:?}");
    assert_eq!(mapped[1][..2], [4, 0].map(Field::Number), "{rows:?}");
    assert!(matches!(mapped[1][2], Field::Number(4..)), "{rows:?}");
}
