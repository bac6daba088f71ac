//! Recordings of processes that never were, on the modelled kernel. What is found in them without it is tested where
//! the plans are made, from the same programs.

mod programs;

use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::workloads::strace::replay;

#[test]
fn the_modelled_kernel_does_it_in_an_order_in_which_it_may_have_happened() {
    let (machine, kernel) = (MachineChoice::find("xeon-mp"), KernelChoice::find("sf_buf"));
    let (machine, kernel) = (machine.expect("a machine"), kernel.expect("a kernel"));
    for seed in 0..40 {
        let text = programs::recording(seed, 8);
        let replayed = replay(&machine, &kernel, "generated", text.as_bytes(), None).expect("it runs");
        assert!(replayed.laws.iter().all(|law| law.held), "{seed}: {:?}\n{text}", replayed.laws);
        assert_eq!(replayed.first_deviations, [], "{seed}: {text}");
    }
}
