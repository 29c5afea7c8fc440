//! `--serve` and `--tui`: the live views of a run.

use crate::args::KeepArgs;
use crate::error::usage;
use crate::interrupt::interrupt;
use crate::print::note;
use anyhow::anyhow;
use std::path::Path;
use towers_live::{Error, LiveStatus, Page, Server, tui::Tui};
use towers_train::{Observer, StopFlag};

/// The live views of a run.
pub struct Views {
    server: Option<Server>,
    page: Option<Page>,
    in_terminal: bool,
}

impl Views {
    /// Binds the address of the page, if there is to be one.
    pub fn bind(args: &KeepArgs, in_terminal: bool) -> anyhow::Result<Views> {
        let server = args.serve.as_ref().map(|address| Server::bind(address.as_deref()));
        let server = server.transpose().map_err(|error| match error {
            Error::Address { given, reason } => usage(format!("--serve is {given}, but {reason}")),
            Error::Listen { at, reason } => anyhow!("--serve is {at}, but {reason}"),
            other => anyhow!("--serve: {other}"),
        })?;
        Ok(Views { server, page: None, in_terminal })
    }

    /// Adds the views to the observers of a run. The first of these prints the progress, which the terminal replaces.
    pub fn observe(
        &mut self,
        run: &Path,
        observers: &mut Vec<Box<dyn Observer>>,
        stop: &StopFlag,
    ) -> anyhow::Result<()> {
        let (status, address) = (LiveStatus::default(), self.server.as_ref().map(Server::url));
        if let Some(server) = self.server.take() {
            note(format_args!("the live view is at {}", server.url()));
            let page =
                self.page.insert(server.page(run.to_owned(), towers_runs::name_of(run), status.clone()));
            // Last, since it shows the files of the others.
            observers.push(Box::new(page.clone()));
        }
        if self.in_terminal {
            let (raised, stop) = (stop.clone(), stop.clone());
            let (stopping, interrupt) = (move || raised.is_raised(), move || interrupt(&stop, true));
            observers.splice(..1, Tui::observers(run, address, status.clone(), stopping, interrupt)?);
        }
        observers.insert(0, Box::new(status));
        Ok(())
    }

    /// Tells readers of the page how the run ended.
    pub fn end(&self, how: &str) {
        self.page.iter().for_each(|page| page.end(how));
    }
}
