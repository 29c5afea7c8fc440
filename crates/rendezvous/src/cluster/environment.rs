use super::{Place, Source};
use crate::{Error, Result};
use core::ops::RangeInclusive;

/// More processes than any run has. Larger numbers are mistakes.
pub(crate) const MOST_PROCESSES: u64 = 1 << 20;
/// The default port of torchrun.
const PORT: u16 = 29500;
/// The variables of the environment. Their text is not trusted.
pub(crate) struct Environment<'a>(pub(crate) &'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// The value of the first variable that is set, and its name.
    pub(super) fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.text(name)?)))
    }

    /// A whole number, if the variable is set.
    pub(crate) fn number(&self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { text.parse().ok().filter(|number| range.contains(number)) } else { None };
        let accepted = || format!("a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Error::variable(name, &text, accepted()))
    }

    /// A rank and the number of ranks. If the rank is set, both must be.
    pub(super) fn ranks(&self, rank: &'static str, world: &'static str) -> Result<Option<(usize, usize)>> {
        let Some(own) = self.number(rank, 0..=MOST_PROCESSES - 1)? else { return Ok(None) };
        let Some(all) = self.number(world, 1..=MOST_PROCESSES)? else {
            return Err(Error::missing(world, format!("set, since {rank} is")));
        };
        if own >= all {
            let accepted = format!("below {world}, which is {all}");
            return Err(Error::variable(rank, &own.to_string(), accepted));
        }
        Ok(Some((own as usize, all as usize)))
    }

    /// As [`Self::ranks`] for the ranks of one machine, at most all. Without variables: one of one.
    pub(super) fn local_ranks(
        &self,
        rank: &'static str,
        world: &'static str,
        all: usize,
    ) -> Result<(usize, usize)> {
        let (own, here) = self.ranks(rank, world)?.unwrap_or((0, 1));
        if here > all {
            let accepted = format!("at most the number of all processes, which is {all}");
            return Err(Error::variable(world, &here.to_string(), accepted));
        }
        Ok((own, here))
    }

    /// The number of restarts of the job; 0 by default.
    pub(super) fn restarts(&self, name: &'static str) -> Result<u32> {
        Ok(self.number(name, 0..=u64::from(u32::MAX))?.unwrap_or(0) as u32)
    }

    /// A process by the variables of its rank and of the number of processes, if the rank is set.
    pub(super) fn place(&self, source: Source) -> Result<Option<Place>> {
        let (rank, world) = source.variables();
        Ok(self.ranks(rank, world)?.map(|(rank, world)| Place::new(source, rank, world)))
    }

    /// The address of rank 0: `MASTER_ADDR` and `MASTER_PORT`, which override those of a launcher.
    pub(super) fn master(&self, launcher: Option<(String, u16)>) -> Result<Option<(String, u16)>> {
        let port = self.port("MASTER_PORT")?;
        let address = self.host("MASTER_ADDR")?.map(|host| (host, PORT)).or(launcher);
        Ok(address.map(|(host, default)| (host, port.unwrap_or(default))))
    }

    /// The address that a launcher's variables give.
    pub(super) fn address(&self, host: &'static str, port: &'static str) -> Result<Option<(String, u16)>> {
        let port = self.port(port)?.unwrap_or(PORT);
        Ok(self.host(host)?.map(|host| (host, port)))
    }

    fn host(&self, name: &'static str) -> Result<Option<String>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match host_name(&text) {
            Some(host) => Ok(Some(host.to_owned())),
            None => Err(Error::variable(name, &text, "the name or address of a machine")),
        }
    }

    fn port(&self, name: &'static str) -> Result<Option<u16>> {
        Ok(self.number(name, 1..=65_535)?.map(|port| port as u16))
    }
}

/// The name or address of a machine, without the brackets of an IPv6 address. `None` if it is malformed.
pub(super) fn host_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
    (!inner.is_empty() && inner.len() <= 253 && inner.bytes().all(fits)).then_some(inner)
}
