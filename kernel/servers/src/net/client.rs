//! The network that servers have, as the kernel knows it: where sockets are made, and who is told of what.

use super::super::request::Bytes;
use super::service::{NetService, Programs};
use super::socket::ServedSocket;
use super::words::Request;
use super::{driver, protocols};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid, SocketKind};
use pageferry_core::fs::{File, Rights};
use pageferry_core::proc::Syscall;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, StructArena, Threads};
use pageferry_ispc::NetServiceConfig;
use pageferry_kernel::Kernel;
use pageferry_kernel::NetServer;
use pageferry_net::{PcbId, ProtocolHost, Protocols};

/// See the [module](self).
pub(crate) struct Network<M: Machine>(Arc<NetService<M>>);

impl<M: Machine> Network<M> {
    pub(crate) fn new(
        m: &M,
        config: NetServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Network<M>, ArenaFull> {
        let programs = Programs { protocols: protocols::run, driver: driver::run };
        Ok(Network(Arc::new(NetService::new(m, config, programs, arena)?)))
    }

    /// The kernel has booted.
    pub(crate) fn started(&self, kernel: &Arc<Kernel<M>>) {
        self.0.home.set(kernel);
    }
}

impl<M: Machine> NetServer<M> for Network<M> {
    fn host(&self) -> Arc<dyn ProtocolHost> {
        self.0.clone()
    }

    fn servers(&self) -> (Option<Pid>, Option<Pid>) {
        self.0.servers()
    }

    fn end(&self, call: &Syscall<'_, M>) {
        self.0.end(call);
    }

    fn ended(&self, threads: &dyn Threads, service: u32) {
        self.0.ended(threads, service);
    }

    fn check_quiescent(&self) -> Result<(), String> {
        self.0.check_quiescent()
    }
}

impl<M: Machine> ProtocolHost for NetService<M> {
    fn changed(&self, threads: &dyn Threads, id: PcbId) {
        NetService::changed(self, threads, id);
    }

    fn has_work(&self, threads: &dyn Threads) {
        NetService::has_work(self, threads);
    }
}

impl<M: Machine> Protocols<M> for Network<M> {
    fn socket(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<File<M>, Errno> {
        loop {
            let server = self.0.serving(call)?;
            match self.0.ask(call, server, &Request::Socket { kind }, Bytes::None, true) {
                // It dies: the next one is as good.
                Err(Errno::ConnectionReset | Errno::ConnectionRefused) => {
                    self.0.protocols.wait_ended(call, server);
                }
                done => {
                    let socket = ServedSocket::new(self.0.clone(), server, done?.answer()?.value, kind);
                    return Ok(File::socket(Box::new(socket), Rights::READ_WRITE));
                }
            }
        }
    }
}
