//! Scenarios hold, and one that expects something else says where it did not.

use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::teach::{Scenario, play};

fn site() -> (MachineChoice, KernelChoice) {
    (MachineChoice::find("xeon-mp").unwrap(), KernelChoice::find("uvm-paging").unwrap())
}

#[test]
fn a_scenario_holds_under_every_schedule() {
    let (machine, kernel) = site();
    let scenario = Scenario::find("shared-shadow").unwrap();
    for seed in [None, Some(1), Some(2)] {
        for outcome in play(&scenario, &machine, &kernel, seed).unwrap() {
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
    let outcomes = play(&scenario, &machine, &kernel, None).unwrap();
    for outcome in outcomes {
        let message = outcome.wrong.expect("it cannot hold");
        assert!(message.contains("Expect of parent") && message.contains("byte 0 begins `mine"), "{message}");
    }
}
