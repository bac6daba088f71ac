//! How a program fails.

/// How a program failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step at which it was noticed, from zero.
    pub step: usize,
    /// What is wrong.
    pub message: String,
}
