//! `pageferry completions` and `man`: what shells and `man` know of the command line, made from it.
//!
//! What can fail: a command that there is not.

use crate::args::{Arguments, Completions, Man, ShellWord};
use crate::terminal::print;
use clap::CommandFactory as _;
use clap_complete::Shell;
use pageferry_lab::{LabError, nearest};
use std::process::ExitCode;

/// Prints the completions of a shell.
pub(crate) fn completions(options: &Completions) -> Result<ExitCode, LabError> {
    let shell = match options.shell {
        ShellWord::Bash => Shell::Bash,
        ShellWord::Zsh => Shell::Zsh,
        ShellWord::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "pageferry", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a manual page.
pub(crate) fn man(options: &Man) -> Result<ExitCode, LabError> {
    let mut command = Arguments::command();
    // So each command knows the words before its own.
    command.build();
    for name in &options.command {
        let Some(found) = command.find_subcommand(name) else {
            let shown = command.get_subcommands().filter(|known| !known.is_hide_set());
            let known: Vec<String> = shown.map(|known| known.get_name().to_owned()).collect();
            let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
            return Err(LabError::Unknown { kind: "command", name: name.clone(), nearest, known });
        };
        command = found.clone();
    }
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(command).render(&mut page);
    written.map_err(|e| LabError::io("write", "the manual page", e))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}
