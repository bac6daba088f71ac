//! The Internet protocols: ARP, IPv4, ICMP, UDP and TCP over mbuf chains (after 4.4BSD), on a network card and on
//! loopback.
//!
//! # What it holds
//! A [`Net`] is all of it: the interfaces, the ARP table, and a *protocol control block* for each socket ([`Pcb`]). The
//! blocks own what is on its way; a socket as a process sees it ([`socket`]) has the number of its block.
//!
//! * [`wire`]: packets' headers, as values. [`pcb`]: blocks, and how an arriving packet finds its own; [`datagrams`]:
//!   what one of UDP's has. [`stack`]: all of it, under its locks; [`conn`]: a block at work; [`alarm`]: when a part
//!   has something to do, and [`ring`] what comes of it; [`tally`]: what was done and dropped.
//! * [`iface`]: where a packet goes: loopback, or the card. [`link`]: who drives that, [`output`] leads there: the
//!   kernel's [`driver`] of the [`card`], or a server, for which [`server`] is; [`repack`]: what a driver can do for a
//!   card. [`arp`]: addresses of stations, and [`neighbours`]: those that are known.
//! * [`ip`], [`icmp`], [`udp`], [`tcp`]: the protocols, each with its way in and its way out; [`reass`]: what comes in
//!   [`fragments`].
//! * [`socket`]: the files that processes have. [`calls`]: what a process asks of them; [`who`]: whoever has the
//!   protocols.
//!
//! # Locks
//! In [`stack`]: over the table of control blocks, each block, fragments, the table of neighbours, the card, and
//! loopback. They come before all other locks.
//!
//! # What can fail
//! Everything that needs an mbuf: then a packet is lost, as on any wire, and TCP sends it again.

mod alarm;
mod arp;
mod calls;
mod card;
mod conn;
mod datagrams;
mod driver;
mod fragments;
mod icmp;
mod id;
mod iface;
mod ip;
mod link;
mod neighbours;
mod output;
mod pcb;
mod reass;
mod repack;
mod ring;
mod server;
mod socket;
mod stack;
mod tally;
mod tcp;
mod udp;
mod upcall;
mod who;
mod wire;

pub use card::{clusters_for_card, mbufs_for_card};
pub use id::PcbId;
pub use socket::InetSocket;
pub use stack::{LOCK_CLASSES, Net, Parts, ProtocolHost};
pub use tally::Counts;
pub use who::Protocols;
