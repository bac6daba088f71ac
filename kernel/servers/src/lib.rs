//! Parts of the kernel that are processes: the file system, the protocols, the driver of the network card.
//!
//! Programs make the same system calls as under a kernel that has these parts itself. For the calls that a server has
//! to do with, the kernel makes requests of it, from the calling process: words in a control piece of the communication
//! area, bytes in a data piece.
//!
//! * `files`: the file server.
//! * `net`: the protocol server and the driver's server.
//! * `home`: the kernel that they belong to. `service`: which process serves. `request`: one request of a client;
//!   `answer`: what comes back. `inside`: what a server has, where several threads may be inside.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
mod files;
mod home;
mod inside;
mod net;
mod request;
mod service;
mod word;

use alloc::boxed::Box;
use alloc::sync::Arc;
use files::Files;
use net::Network;
use once_cell::race::OnceBox;
use pageferry_hal::{Devices, Machine, StructArena};
use pageferry_ispc::{FileServiceConfig, NetServiceConfig};
use pageferry_kernel::{BootError, FileServer, Kernel, KernelConfig, NetServer, Servers};

/// The servers of this crate, for one kernel.
struct Standard<M: Machine> {
    files: OnceBox<Arc<Files<M>>>,
    net: OnceBox<Arc<Network<M>>>,
}

/// Brings a kernel up as [`Kernel::boot`] does, with the servers of this crate where the configuration names some.
///
/// # Errors
/// [`BootError`]: this configuration and this machine do not go together.
pub fn boot<M: Machine>(
    machine: M,
    devices: Devices,
    config: KernelConfig,
) -> Result<Arc<Kernel<M>>, BootError> {
    let servers = Standard { files: OnceBox::new(), net: OnceBox::new() };
    Kernel::boot_with(machine, devices, config, &servers)
}

impl<M: Machine> Servers<M> for Standard<M> {
    fn files(
        &self,
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Arc<dyn FileServer<M>>, BootError> {
        let files = Arc::new(Files::new(m, config, arena)?);
        drop(self.files.set(Box::new(files.clone())));
        Ok(files)
    }

    fn net(
        &self,
        m: &M,
        config: NetServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Arc<dyn NetServer<M>>, BootError> {
        let net = Arc::new(Network::new(m, config, arena)?);
        drop(self.net.set(Box::new(net.clone())));
        Ok(net)
    }

    fn started(&self, kernel: &Arc<Kernel<M>>) {
        self.files.get().into_iter().for_each(|files| files.started(kernel));
        self.net.get().into_iter().for_each(|net| net.started(kernel));
    }
}
