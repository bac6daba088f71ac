//! Programs that failed once, a run of new ones, and the proof that a run can fail.

use pageferry_soak::{MACHINES, NetDefect, Planted, Program, Soak, SoakError, VmDefect};
use std::path::Path;

const SOAK: Soak = Soak { seed: 1, steps: 80_000, machine: None, depth: None, threads: 2, defect: None };

#[test]
fn programs_that_once_failed() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let mut run = 0;
    for file in std::fs::read_dir(kept).unwrap() {
        let path = file.unwrap().path();
        let program: Program = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        program.validate().unwrap();
        assert_eq!(program.run(), Ok(()), "{}", path.display());
        run += 1;
    }
    assert!(run >= 6, "the kept programs are gone");
}

#[test]
fn new_programs() {
    let steps = SOAK.run(&|_| true).unwrap_or_else(|found| panic!("{found:?}"));
    assert_eq!(steps, SOAK.steps);
}

#[test]
fn new_programs_by_priorities() {
    let soak = Soak { depth: Some(3), steps: 20_000, ..SOAK };
    let steps = soak.run(&|_| true).unwrap_or_else(|found| panic!("{found:?}"));
    assert_eq!(steps, soak.steps);
    // What is kept says by which schedule, and runs under that.
    let program =
        (0..).map(|episode| soak.program(episode)).find(|program| program.schedule.is_some()).unwrap();
    let kept = serde_json::to_string(&program).unwrap();
    assert!(kept.contains(r#""depth":3"#));
    assert_eq!(serde_json::from_str::<Program>(&kept).unwrap(), program);
}

#[test]
fn a_defect_is_found_and_cut_down_to_what_matters() {
    let soak = Soak { defect: Some(Planted::Vm(VmDefect::LoanWithoutProtect)), ..SOAK };
    let found = || match soak.run(&|_| true) {
        Err(SoakError::Found(found)) => found,
        other => panic!("the defect is planted: {other:?}"),
    };
    let again = found();
    let found = found();
    assert!(found.program.len() <= 3, "{:?}", found.program.steps);
    assert_eq!((found.step, found.program), (again.step, again.program), "the same is found again");
}

#[test]
fn a_program_may_name_any_process_and_any_cpu() {
    let max = usize::MAX;
    let step = |beside: bool, process: usize, offset: usize| {
        format!(
            r#"{{ "process": {process}, "cpu": {max}, "beside": {beside},
                 "op": {{ "Write": {{ "offset": {offset}, "len": 9, "tag": 1 }} }} }}"#
        )
    };
    let map = r#"{ "process": 0, "cpu": 0,
                   "op": { "Map": { "page": 0, "pages": 9, "access": "ReadWrite", "child": "Copy" } } }"#;
    let steps = [map.to_owned(), step(false, max, 1), step(true, max - 1, 9000)].join(", ");
    let program: Program =
        serde_json::from_str(&format!(r#"{{ "machine": "xeon-mp-htt", "steps": [ {steps} ] }}"#)).unwrap();
    program.validate().unwrap();
    assert_eq!(program.run(), Ok(()));
}

#[test]
fn a_program_from_elsewhere_is_checked() {
    let of = |text: &str| serde_json::from_str::<Program>(text).unwrap().validate();
    assert!(of(r#"{ "machine": "vax", "steps": [] }"#).unwrap_err().contains("xeon-up"));
    let far = r#"{ "machine": "xeon-up", "steps": [
        { "process": 0, "cpu": 0, "op": { "Unmap": { "page": 900, "pages": 1 } } } ] }"#;
    assert!(of(far).unwrap_err().starts_with("step 0"));
    for (words, expected) in
        [(r#""depth": 3"#, "the seed of one"), (r#""schedule": 1, "depth": 0"#, "1 to 100")]
    {
        let file = format!(r#"{{ "machine": "xeon-up", {words}, "steps": [] }}"#);
        let refused = serde_json::from_str::<Program>(&file).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_program_has_steps_of_one_kind() {
    let kept = |program: Program| serde_json::to_value(program).unwrap();
    let (memory, traffic) = (kept(SOAK.program(0)), kept(SOAK.traffic(0)));
    let (servers, calls) = (kept(SOAK.servers(0)), kept(SOAK.calls(0)));
    let of = |kinds: &[(&str, &serde_json::Value)]| {
        let mut file = serde_json::json!({ "machine": "xeon-up" });
        kinds.iter().for_each(|(kind, from)| file[*kind] = from[*kind].clone());
        serde_json::from_value::<Program>(file).map(|program| program.len()).map_err(|e| e.to_string())
    };
    let kinds = [("steps", &memory), ("traffic", &traffic), ("servers", &servers), ("calls", &calls)];
    for (i, kind) in kinds.into_iter().enumerate() {
        assert!(of(&[kind]).unwrap() > 0, "{kind:?}");
        for other in kinds.into_iter().skip(i + 1) {
            let several = "it has several of `steps`, `traffic`, `servers` and `calls`, expected one of them";
            assert_eq!(of(&[kind, other]).unwrap_err(), several);
        }
    }
    assert_eq!(of(&[]).unwrap_err(), "it does nothing, expected `steps`, `traffic`, `servers` or `calls`");
}

#[test]
fn calls_answer_as_the_plain_model_says() {
    for episode in 0..MACHINES.len() as u64 {
        let program = SOAK.calls(episode);
        program.validate().unwrap();
        assert_eq!(program.run(), Ok(()), "{episode}: {:#?}", program.lines());
    }
}

/// CPUs that are held up for long find what no other schedule does: a process that a parent has made, and that runs
/// before the parent goes on.
#[test]
fn calls_answer_so_by_priorities() {
    for depth in 2..5 {
        let soak = Soak { depth: Some(depth), seed: u64::from(depth), ..SOAK };
        for episode in 0..MACHINES.len() as u64 {
            let program = soak.calls(episode);
            assert_eq!(program.run(), Ok(()), "{depth}, {episode}: {:#?}", program.lines());
        }
    }
}

#[test]
fn defects_show_in_calls() {
    for defect in [
        Planted::Vm(VmDefect::CopyForgotten),
        Planted::Vm(VmDefect::ZeroForgotten),
        Planted::Vm(VmDefect::ForkWithoutProtect),
        Planted::Vm(VmDefect::AnonReferenceForgotten),
        Planted::Net(NetDefect::FlipOfPart),
        Planted::Net(NetDefect::AreaPageReused),
        Planted::Net(NetDefect::LentMappingKept),
    ] {
        let found = (0..64).any(|episode| SOAK.calls(episode).run_planted(defect).is_err());
        assert!(found, "{defect:?}");
    }
}

#[test]
fn traffic_says_what_was_said() {
    for episode in 0..16 {
        let program = SOAK.traffic(episode);
        program.validate().unwrap();
        assert_eq!(program.run(), Ok(()), "{episode}: {:#?}", program.lines());
    }
}

#[test]
fn a_defect_of_the_protocols_is_found_and_cut_down() {
    let soak = Soak { defect: Some(Planted::Net(NetDefect::DuplicateDelivered)), ..SOAK };
    let Err(SoakError::Found(found)) = soak.run(&|_| true) else { panic!("the defect is planted") };
    assert!(found.program.len() <= 10, "{:#?}", found.program);
    let text = serde_json::to_string(&found.program).unwrap();
    let kept: Program = serde_json::from_str(&text).unwrap();
    assert_eq!((kept.validate(), kept.run()), (Ok(()), Ok(())), "a sound kernel: {text}");
}

#[test]
fn traffic_from_elsewhere_is_checked() {
    let over = |ppm: u32, us: u32, op: &str| {
        let connect = r#"{ "connection": 7, "op": { "Connect": { "wire": true, "buffer": 10000 } } }"#;
        let first = if ppm > 0 { format!("{connect},") } else { String::new() };
        let traffic = format!(
            r#"{{ "seed": 1, "loss_ppm": {ppm}, "duplicate_ppm": {ppm}, "reorder_ppm": {ppm}, "reorder_us": {us},
                 "corrupt_ppm": {ppm}, "delay_us": {us}, "steps": [ {first} {{ "connection": 7, "op": {op} }} ] }}"#
        );
        let text = format!(r#"{{ "machine": "xeon-up", "traffic": {traffic} }}"#);
        let program: Program = serde_json::from_str(&text).unwrap();
        program.validate().map(|()| assert_eq!(program.run(), Ok(())))
    };
    let of = |op: &str| over(0, 0, op);
    assert_eq!(of(r#"{ "Send": { "len": 9 } }"#), Ok(()), "there is no connection");
    assert_eq!(
        over(20_000, 300, r#"{ "Drain": { "len": 20000 } }"#),
        Ok(()),
        "what is allowed comes to its end"
    );
    for (ppm, us, key) in
        [(30_001, 0, "loss_ppm: 30001"), (u32::MAX, 0, "loss_ppm"), (1, u32::MAX, "reorder_us: 4294967295")]
    {
        assert!(over(ppm, us, r#""Shutdown""#).unwrap_err().starts_with(key));
    }
    assert!(of(r#"{ "Wait": { "us": 3001 } }"#).unwrap_err().contains("step 0: 3001 us, expected at most"));
    assert!(of(r#"{ "Send": { "len": 0 } }"#).unwrap_err().contains("step 0: 0 bytes, expected 1 to"));
    assert!(
        of(r#"{ "Connect": { "wire": true, "buffer": 1 } }"#).unwrap_err().contains("a buffer of 1 bytes")
    );
}

#[test]
fn every_defect_of_the_protocols_is_found() {
    for defect in Planted::all().filter(|planted| matches!(planted, Planted::Net(_))) {
        let soak = Soak { steps: 4_000_000, defect: Some(defect), ..SOAK };
        let Err(SoakError::Found(found)) = soak.run(&|_| true) else { panic!("{defect:?} is not found") };
        assert!(found.program.len() <= 120);
    }
}

#[test]
fn servers_have_what_they_are_given() {
    for episode in 0..32 {
        let program = SOAK.servers(episode);
        program.validate().unwrap();
        assert_eq!(program.run(), Ok(()), "{episode}: {:#?}", program.lines());
    }
}

#[test]
fn every_defect_of_servers_is_found() {
    let planted = |planted: &Planted| matches!(planted, Planted::Ispc(_) | Planted::Area(_));
    for defect in Planted::all().filter(planted) {
        let machine = Some("sh7751r+unused");
        let soak = Soak { steps: 400_000, defect: Some(defect), machine, ..SOAK };
        let Err(SoakError::Found(found)) = soak.run(&|_| true) else { panic!("{defect:?} is not found") };
        let text = serde_json::to_string(&found.program).unwrap();
        let kept: Program = serde_json::from_str(&text).unwrap();
        assert_eq!((kept.validate(), kept.run()), (Ok(()), Ok(())), "a sound kernel: {text}");
    }
}

#[test]
fn servers_from_elsewhere_are_checked() {
    let of = |op: &str| {
        let steps = format!(r#"[ {{ "application": 9, "op": {op} }} ]"#);
        let text =
            format!(r#"{{ "machine": "xeon-up", "servers": {{ "by": "Migrating", "steps": {steps} }} }}"#);
        let program: Program = serde_json::from_str(&text).unwrap();
        program.validate().map(|()| assert_eq!(program.run(), Ok(())))
    };
    assert_eq!(of(r#"{ "TouchFreed": { "piece": 9 } }"#), Ok(()), "there is no piece");
    assert!(of(r#"{ "Alloc": { "pages": 9 } }"#).unwrap_err().contains("expected pieces of 1 to 2 pages"));
}

#[test]
fn shadow_objects_do_what_amaps_do() {
    for episode in 0..MACHINES.len() as u64 {
        let program = SOAK.shadows(episode);
        program.validate().unwrap();
        assert_eq!(program.run(), Ok(()), "{}", program.machine);
    }
}

#[test]
fn defects_of_chains_are_found() {
    for defect in [
        VmDefect::ShadowUncounted,
        VmDefect::CollapseOldWins,
        VmDefect::CollapseForgetsSlots,
        VmDefect::BypassUnchecked,
        VmDefect::PromoteWithoutRevoke,
        VmDefect::ForkWithoutProtect,
        VmDefect::ForkSharesWired,
    ] {
        let found = (0..60).any(|episode| SOAK.shadows(episode).run_planted(Planted::Vm(defect)).is_err());
        assert!(found, "{defect:?} is not found");
    }
}
