//! The traces that come with the crate.

use pageferry_trace::{Architecture, Kind, Reader, Rules, Summary, bundled};

#[test]
fn all_can_be_read() {
    let ppc = Architecture::named("ppc").expect("it is known");
    for trace in bundled() {
        let mut reader = Reader::new(trace.bytes, 0x8000_0000).expect(trace.name);
        assert_eq!(reader.header().architecture, "ppc");
        assert_eq!(reader.header().rules, Rules::STANDARD);
        let (mut last, mut counted) = (None, 0);
        while let Some(record) = reader.next() {
            let record = record.unwrap_or_else(|error| panic!("{}: {error}", trace.name));
            assert!(record.instructions <= 10_000);
            if record.kind == Kind::Call {
                last = ppc.call_name(reader.call().number);
                counted += 1;
            }
        }
        assert_eq!(last, Some("exit_group"), "{}", trace.name);
        assert_eq!(counted, reader.totals().calls);
        assert_eq!(reader.position(), reader.totals().instructions, "the last instruction is a call");
    }
    let bytes: usize = bundled().iter().map(|trace| trace.bytes.len()).sum();
    assert!(bytes < 17_000_000, "{bytes}");
}

#[test]
fn they_are_those_that_the_readme_describes() {
    for trace in bundled() {
        let mut reader = Reader::new(trace.bytes, u64::MAX).expect("sound");
        let references = reader.totals().references();
        let summary = Summary::of(&mut reader).expect("sound");
        let [small, large] = &summary.tlbs;
        let row = format!(
            "| {} | {:.1} M | {} | {} | {} / {} | {} / {} |",
            trace.name,
            references as f64 / 1e6,
            summary.code_pages,
            summary.data_pages,
            small.instruction,
            small.data,
            large.instruction,
            large.data
        );
        assert!(include_str!("../../README.md").contains(&row), "README.md lacks: {row}");
    }
}
