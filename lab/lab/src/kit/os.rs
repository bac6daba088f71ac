//! Processes of the modelled machine, as the programs of `pageferry-workloads` see them. Where a child of one fails is
//! left in the run's outcome.

use super::onlooker::Onlooker;
use super::outcome::OutcomeCell;
use pageferry_kernel::{Imported, Pid, ReceiveMode, SendMode, User};
use pageferry_model::Model;
use pageferry_processes::Watch;
use pageferry_workloads::CallError;

/// A process of the modelled machine.
pub(crate) type Process<'a> = pageferry_processes::Process<'a, Model, Onlooker>;

impl Watch<Model> for Onlooker {
    fn meets(&self, user: &User<Model>) {
        Onlooker::meets(self, user);
    }

    fn leaves(&self, pid: Pid) {
        Onlooker::leaves(self, pid);
    }

    fn ended(&self, ended: Result<(), CallError>) {
        if let Err((what, errno)) = ended {
            self.cell.borrow_mut().fail(what, errno);
        }
    }

    // Onlookers see memory that is not mapped.
    fn imported(&self, _: &User<Model>, _: &Imported) {}
}

/// Where the kernel is to choose, lets it measure what its choices rest on before anything is sent, so that both ends
/// begin as they do without a choice.
pub fn measure_first(user: &User<Model>, send: SendMode, receive: ReceiveMode) -> Result<(), CallError> {
    let onlooker = Onlooker::new(user.machine(), &OutcomeCell::default());
    pageferry_workloads::measure_first(&Process::new(user, &onlooker), send, receive)
}
