//! The data files: what each kind of them says, and how one is found, checked and changed.
//!
//! Machines, kernels, experiments and papers are embedded in the program ([`catalogue`] has them by name).
//! What a file says is refused here when it makes no sense, before anything is run. Nothing in this room runs a
//! machine.

pub mod catalogue;
mod curve_check;
mod disk;
mod ephemeral;
mod experiment_file;
mod experiments;
mod frames;
mod ispc;
mod kernels;
mod locks;
mod machines;
mod matched;
mod matrix_check;
mod net;
mod papers;
mod parameters;
mod paths;
mod quotes;
mod ranges;
mod reads;
mod rule_check;
mod rules;
mod sched;
mod setting;
mod settings;
mod tlb;
mod units;
mod words;

pub use disk::{DiskFile, DiskPathsFile, SyncerFile};
pub use ephemeral::{AddressesName, EphemeralFile, SchemeName};
pub use experiment_file::{
    Better, Choice, CurveLine, Curves, ExperimentFile, Matrix, Parameter, Scale, Vary, Worse,
};
pub use experiments::{Experiment, MAX_REPEAT};
pub use frames::{FramesFile, PagingFile, TransferFile};
pub use kernels::{
    EphemeralPathsFile, KernelChoice, KernelFile, KernelPathsFile, PathsFile, PipeFile, PmapFile,
    PmapPathsFile, SocketFile, VmPathsFile,
};
pub use locks::LocksFile;
pub use machines::MachineChoice;
pub use net::{NetFile, NetPathsFile};
pub use papers::{Paper, Published, Relation, Role};
pub use parameters::{Parameters, Value, WordOrFile, reads, value};
pub use quotes::{Quote, figures_beside};
pub use reads::{KnownWorkloads, Metrics, Reads, Values};
pub use rules::{Along, Compare, How, Shape};
pub use sched::SchedFile;
pub use setting::Setting;
pub use settings::Settings;
pub(crate) use settings::{kernel_range, machine_range};
pub use tlb::TlbFile;
pub use words::{
    DefectName, ForwardName, FrameMappingName, FreedToName, LentMappingName, LoanLockingName, MappingName,
    NullAnswersName, PipeKindName, PreloadName, PtraceName, RuleName,
};
