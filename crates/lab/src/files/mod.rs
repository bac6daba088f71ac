//! The data files: what each kind of them says, and how one is found, checked and changed.
//!
//! Machines, kernels, experiments, papers and scenarios are embedded in the program ([`registry`] has them by name). What a
//! file says is refused here when it makes no sense, before anything is run. Nothing in this room runs a machine.

mod experiments;
mod kernels;
mod machines;
mod papers;
pub mod registry;
mod rules;
mod settings;

pub use experiments::{
    Choice, CurveLine, Curves, Experiment, ExperimentFile, Matrix, Parameter, Scale, Vary, Workload,
};
pub use kernels::{
    EphemeralFile, EphemeralPathsFile, FaultName, ForwardName, KernelChoice, KernelFile, KernelPathsFile,
    MappingName, PagingFile, PathsFile, PipeFile, PipeKindName, PmapFile, PmapPathsFile, RuleName, SchedFile,
    SchemeName, SocketFile, VmPathsFile,
};
pub use machines::MachineChoice;
pub use papers::{Paper, Published, Relation, Role};
pub use rules::{Along, Compare, How};
pub use settings::{Settings, parse_integer};
