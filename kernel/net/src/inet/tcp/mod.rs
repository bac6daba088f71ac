//! TCP (RFC 9293; 4.4BSD, `tcp_input.c`, `tcp_output.c`, `tcp_timer.c`).
//!
//! * [`tcb`]: a connection's state. [`seq`]: sequence numbers.
//! * [`input`]: segments that arrive. [`ack`]: what an acknowledgement changes: times, windows, congestion (RFC 5681,
//!   6298, 6582).
//! * [`output`]: which segment to send, if any. [`reset`]: segments without a connection.
//! * [`timer`]: retransmission, persistence, delayed acknowledgements, the end of TIME_WAIT.
//! * [`listen`]: how connections come to be. [`life`]: what they begin with, and how they end.
//!
//! What is sent stays in the socket's buffer until it is acknowledged; a segment is a chain that shares its mbufs, so
//! it can be sent again at any time. What arrives in order goes to the other buffer as it is.
//!
//! Options that are understood: maximum segment size, window scale, timestamps (RFC 7323). Urgent data is data like any
//! other.

mod ack;
mod input;
mod life;
mod listen;
mod output;
mod reset;
mod seq;
mod tcb;
mod timer;

pub(super) use tcb::{Buffers, Tcb, TcpState};
