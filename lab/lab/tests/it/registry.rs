//! Workloads and experiments by their names.

use pageferry_lab::Registry;
use pageferry_lab::files::catalogue::{self, Kind};
use pageferry_lab::files::{KernelChoice, MachineChoice};

#[test]
fn experiments_name_only_what_exists() {
    let registry = Registry::standard();
    for name in catalogue::names(Kind::Experiment) {
        // What is in the program is not checked at each start: what somebody brings is.
        let text = catalogue::embedded(Kind::Experiment, name).expect("embedded").text + "\n";
        let brought = registry.clone().with_experiment(name, &text).experiment(name);
        let experiment = brought.unwrap_or_else(|e| panic!("{e}"));
        let file = &experiment.file;
        for block in &file.matrix {
            let machines = block.machines.iter().map(|name| MachineChoice::find(name).map(drop));
            let kernels = block.kernels.iter().map(|name| KernelChoice::find(name).map(drop));
            machines.chain(kernels).for_each(|found| found.unwrap_or_else(|e| panic!("{e}")));
        }
    }
}

#[test]
fn a_workload_that_is_not_there_is_told_with_the_nearest() {
    let text = catalogue::embedded(Kind::Experiment, "bw-pipe").expect("embedded").text;
    let text = text.replace("workload = \"bw-pipe\"", "workload = \"bw-pip\"");
    let registry = Registry::standard().with_experiment("own", &text);
    let told = registry.experiment("own").expect_err("no such workload").to_string();
    assert!(told.starts_with("own.toml:") && told.contains("unknown workload `bw-pip`"), "{told}");
    assert!(told.ends_with("did you mean `bw-pipe`?"), "{told}");
    let none = Registry::new().experiment("bw-pipe").expect_err("no workload at all");
    assert!(none.to_string().contains("unknown workload `bw-pipe`"), "{none}");
}
