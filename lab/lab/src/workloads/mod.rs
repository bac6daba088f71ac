//! The workloads of the experiments that are built in: what the modelled processes do, and what is measured of it.
//!
//! Each is a [`Workload`](crate::run::Workload) with a line in [`Registry::standard`]. Its processes are coroutines of
//! one host thread and leave what they found in a shared [`Outcome`](crate::kit::Outcome). Two are no experiments:
//! [`stream`] carries bytes from outside through a pipe or a socket of the machine, and out again; [`strace`] makes the
//! calls of a real program, as they were recorded.

mod bw_pipe;
mod context_switch;
mod cost_growth;
mod disk;
mod ephemeral_hit;
mod file_read;
mod invalidate;
mod ispc;
mod ispc_clients;
mod memory;
mod message;
mod mixed;
mod net;
mod null_read;
mod null_write;
mod packet;
mod ping_pong;
mod pipeline;
mod replay;
mod sound;
pub mod strace;
pub mod stream;
mod uvm;
mod uvm_pipe;

pub use replay::machines_that_fit;

use crate::run::Registry;

impl Registry {
    /// With the workloads of this crate.
    pub fn standard() -> Registry {
        Registry::new()
            .with::<bw_pipe::BwPipe>()
            .with::<context_switch::ContextSwitch>()
            .with::<cost_growth::CostGrowth>()
            .with::<disk::dd::Dd>()
            .with::<disk::file_calls::FileCalls>()
            .with::<disk::postmark::PostMark>()
            .with::<disk::schemes::Schemes>()
            .with::<ephemeral_hit::EphemeralHit>()
            .with::<file_read::FileRead>()
            .with::<invalidate::Invalidate>()
            .with::<ispc::Ispc>()
            .with::<ispc_clients::IspcClients>()
            .with::<memory::Memory>()
            .with::<message::Message>()
            .with::<mixed::Mixed>()
            .with::<net::flip_receive::FlipReceive>()
            .with::<net::receive_ways::ReceiveWays>()
            .with::<net::zero_copy_receive::ZeroCopyReceive>()
            .with::<net::netperf::Netperf>()
            .with::<net::web::Web>()
            .with::<null_read::NullRead>()
            .with::<null_write::NullWrite>()
            .with::<packet::Packet>()
            .with::<ping_pong::PingPong>()
            .with::<pipeline::Pipeline>()
            .with::<replay::compile::Compile>()
            .with::<replay::copies::Copies>()
            .with::<replay::screen::Screen>()
            .with::<sound::Sound>()
            .with::<uvm::card_send::CardSend>()
            .with::<uvm::fork_chains::ForkChains>()
            .with::<uvm::loan_locks::LoanLocks>()
            .with::<uvm::page_out::PageOut>()
            .with::<uvm::pass_modes::PassModes>()
            .with::<uvm::push_down::PushDown>()
            .with::<uvm::quick_reference::QuickReference>()
            .with::<uvm::relatives::Relatives>()
            .with::<uvm::transfer_area::TransferArea>()
            .with::<uvm_pipe::UvmPipe>()
    }
}
