//! Scenarios hold, and one that expects something else says where it did not.

use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::run::Schedule;
use pageferry_teach::{Outcome, Scenario, play};

const TIMED: (Schedule, u64) = (Schedule::Timed, 0);

fn site() -> (MachineChoice, KernelChoice) {
    (MachineChoice::find("xeon-mp").unwrap(), KernelChoice::find("uvm-paging").unwrap())
}

#[test]
fn a_scenario_holds_under_every_schedule() {
    let (machine, kernel) = site();
    let scenario = Scenario::find("shared-shadow").unwrap();
    let seeded = [Schedule::Seeded, Schedule::Pct(3)].into_iter().flat_map(|s| [(s, 1), (s, 2)]);
    for schedule in seeded.chain([TIMED]) {
        for outcome in play(&scenario, &machine, &kernel, schedule).unwrap() {
            assert_eq!(outcome.wrong, None, "{}", outcome.variant);
        }
    }
}

#[test]
fn what_does_not_hold_is_told() {
    let (machine, kernel) = site();
    let mut scenario = Scenario::find("writes-after-fork").unwrap();
    let last = scenario.file.step.last_mut().unwrap();
    last.text = Some("else".into());
    let outcomes = play(&scenario, &machine, &kernel, TIMED).unwrap();
    for outcome in outcomes {
        let message = outcome.wrong.expect("it cannot hold");
        assert!(message.contains("Expect of parent") && message.contains("byte 0 begins `mine"), "{message}");
    }
}

/// Plays a scenario of these steps.
fn told(steps: &str, kernel: &str) -> Result<Vec<Outcome>, LabError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    std::fs::write(&file, format!("title = 't'\norigin = 'o'\nsummary = 's'\n{steps}")).unwrap();
    let scenario = Scenario::find(file.to_str().unwrap())?;
    play(&scenario, &MachineChoice::find("xeon-mp").unwrap(), &KernelChoice::find(kernel).unwrap(), TIMED)
}

const PAIR: &str = "[[step]]\nprocess = 'a'\ndo = 'map'\nat = 'm'\nlen = 100\n\
                    [[step]]\nprocess = 'a'\ndo = 'socket_pair'\nsockets = ['in', 'out']\n";
const RECEIVE: &str = "[[step]]\nprocess = 'a'\ndo = 'receive'\nsocket = 'in'\nat = 'm'\nlen = 100\n";

#[test]
fn a_step_that_blocks_is_named() {
    let alone = format!("{PAIR}{RECEIVE}");
    let outcomes = told(&alone, "uvm").unwrap();
    let wrong = outcomes[0].wrong.as_deref().unwrap();
    assert!(wrong.starts_with("step 3 (Receive of a) never ended"), "{wrong}");
    // Another process has a step behind it.
    let fork = "[[step]]\nprocess = 'a'\ndo = 'fork'\nchild = 'b'\n";
    let exit = "[[step]]\nprocess = 'b'\ndo = 'exit'\n";
    let outcomes = told(&format!("{PAIR}{fork}{RECEIVE}{exit}"), "uvm").unwrap();
    let wrong = outcomes[0].wrong.as_deref().unwrap();
    assert_eq!(
        wrong,
        "step 4 (Receive of a) is blocked: it waits (netrd), and no other process has anything to do"
    );
}

#[test]
fn a_page_daemon_that_is_not_there_is_bad_input() {
    let page_out = "[[step]]\nprocess = 'a'\ndo = 'page_out'\n";
    let refused = told(page_out, "uvm").unwrap_err();
    assert!(matches!(refused, LabError::Input { .. }));
    assert!(refused.to_string().starts_with("x: step 1: `page_out` needs a page daemon"), "{refused}");
    assert_eq!(told(page_out, "uvm-paging").unwrap()[0].wrong, None);
}
