//! A Python package index: pages of links to files, as PEP 503 describes them.

use anyhow::{Context as _, Result};
use reqwest::Certificate;
use reqwest::blocking::Client;
use std::io::Read as _;
use std::time::Duration;

/// The public index; the variable `PIP_INDEX_URL` names another one, as for pip.
const PUBLIC: &str = "https://pypi.org/simple";

/// How long a server may take to be reached and to answer, and how long to send the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Index {
    client: Client,
    url: String,
}

impl Index {
    /// The index that the environment names.
    pub fn of_environment() -> Result<Index> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let certificates = variable("PIP_CERT").or_else(|| variable("SSL_CERT_FILE"));
        let url = variable("PIP_INDEX_URL").unwrap_or_else(|| PUBLIC.to_owned());
        Ok(Index { client: client(certificates.as_deref())?, url: url.trim_end_matches('/').to_owned() })
    }

    /// The server's name, without the secrets that a URL may hold.
    pub fn host(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap_or_default();
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit('@').next().unwrap_or_default()
    }

    /// Opens a file of a package; at most `limit` bytes of it are read.
    pub fn open(&self, package: &str, file: &str, limit: u64) -> Result<impl std::io::Read + use<>> {
        let page = format!("{}/{package}/", self.url);
        let mut html = String::new();
        let response = self.client.get(&page).header("accept", "text/html").send()?.error_for_status()?;
        response.take(16 << 20).read_to_string(&mut html)?;
        let url = link(&page, &html, file).with_context(|| format!("the index has no {file}"))?;
        Ok(self.client.get(&url).send()?.error_for_status()?.take(limit))
    }
}

/// A client that trusts the certificates in a PEM file, or those of the system.
fn client(certificates: Option<&str>) -> Result<Client> {
    // Another thread may have chosen the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder().timeout(PATIENCE);
    if let Some(file) = certificates {
        let pem = std::fs::read(file).with_context(|| format!("the certificates in {file} can't be read"))?;
        builder = builder.tls_certs_only(Certificate::from_pem_bundle(&pem)?);
    }
    Ok(builder.build()?)
}

/// The address of a file on a page of links.
fn link(page: &str, html: &str, file: &str) -> Option<String> {
    let hrefs = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let names_it =
        |href: &&str| href.split(['#', '?']).next().is_some_and(|path| path.rsplit('/').next() == Some(file));
    let href = hrefs.map(|href| href.split('#').next().unwrap_or(href)).find(names_it)?;
    Some(join(page, &href.replace("&amp;", "&")))
}

/// The address that a link on a page leads to: a whole address, a path from the server's root, or a path from
/// the page's folder.
fn join(page: &str, link: &str) -> String {
    if link.contains("://") {
        return link.to_owned();
    }
    let server = page.match_indices('/').nth(2).map_or(page, |(end, _)| &page[..end]);
    if link.starts_with('/') {
        return format!("{server}{link}");
    }
    let mut folder = page.trim_end_matches('/');
    let mut rest = link;
    while let Some(above) = rest.strip_prefix("../") {
        folder = folder.rsplit_once('/').map_or(folder, |(above, _)| above);
        rest = above;
    }
    format!("{folder}/{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_found_by_its_file() {
        let html = r#"<a href="https://files.example/a/one-1.whl#sha256=00">one-1.whl</a>
            <a data-x="" href="../../packages/two-1.whl?a=1&amp;b=2#sha256=11">two-1.whl</a>"#;
        let find = |file| link("https://example.org/simple/one/", html, file);
        assert_eq!(find("one-1.whl").as_deref(), Some("https://files.example/a/one-1.whl"));
        assert_eq!(find("two-1.whl").as_deref(), Some("https://example.org/packages/two-1.whl?a=1&b=2"));
        assert_eq!(find("ne-1.whl"), None);
        assert_eq!(find("one-1.whl.metadata"), None);
    }

    #[test]
    fn links_lead_where_browsers_go() {
        let page = "https://example.org/top/simple/one/";
        for (link, address) in [
            ("x.whl", "https://example.org/top/simple/one/x.whl"),
            ("../../f/x.whl", "https://example.org/top/f/x.whl"),
            ("/f/x.whl", "https://example.org/f/x.whl"),
            ("http://other.org/x.whl", "http://other.org/x.whl"),
        ] {
            assert_eq!(join(page, link), address);
        }
    }

    #[test]
    fn a_host_is_named_without_secrets() {
        let host = |url: &str| Index { client: client(None).unwrap(), url: url.to_owned() }.host().to_owned();
        assert_eq!(host(PUBLIC), "pypi.org");
        assert_eq!(host("https://user:secret@example.org:8443/simple"), "example.org:8443");
    }
}
