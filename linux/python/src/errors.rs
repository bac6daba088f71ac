//! The library's errors as Python exceptions, which `pageferry._errors` defines: they have bases of Python's own,
//! several each, which only a class statement can give them.

use pageferry::{Error, HostFault, PeerFault, Usage};
use pyo3::PyErrArguments;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The exception for an error.
pub fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Peer(PeerFault::Dead | PeerFault::Evicted) => exception("PeerGone", text),
        Error::Peer(_) => exception("PeerError", text),
        Error::Host(HostFault::Failed { failed }) => {
            exception("HostError", (failed.errno.raw_os_error(), text))
        }
        Error::Host(_) => exception("HostError", text),
        Error::Budget { .. } => exception("BudgetError", text),
        Error::Usage(Usage::AllHeldHere) => exception("PoolFull", text),
        Error::Usage(Usage::Forked) => exception("Forked", text),
        Error::Usage(_) => exception("UsageError", text),
        Error::WouldBlock | Error::TimedOut(_) => exception("TimedOut", text),
        _ => exception("Error", text),
    }
}

/// A caller did what cannot be.
pub fn usage(text: impl Into<String>) -> PyErr {
    exception("UsageError", text.into())
}

fn exception(name: &str, args: impl PyErrArguments + 'static) -> PyErr {
    Python::attach(|py| {
        let class = py.import("pageferry._errors").and_then(|errors| errors.getattr(name));
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, args),
            Err(error) => error,
        }
    })
}
