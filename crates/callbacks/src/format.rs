//! Numbers as Python's `str.format` writes them, as far as names of files need it:
//! `[[fill]align][sign][0][width][.precision][type]` with the types `d`, `e`, `E`, `f`, `F`, `g`, `G` and `%`.

/// The largest width or precision.
const MOST: usize = 32;

/// The part after the colon in `{epoch:02d}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Format {
    fill: char,
    align: Align,
    sign: Option<char>,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Align {
    Left,
    Right,
    Center,
    /// Fills between the sign and the digits.
    Inside,
}

impl Align {
    fn of(mark: char) -> Option<Align> {
        match mark {
            '<' => Some(Align::Left),
            '>' => Some(Align::Right),
            '^' => Some(Align::Center),
            '=' => Some(Align::Inside),
            _ => None,
        }
    }
}

impl Format {
    /// Reads a format for a whole number or a fraction; `None` if Python would refuse it, or names of files
    /// don't need it.
    pub(crate) fn parse(text: &str, whole: bool) -> Option<Format> {
        let mut rest: Vec<char> = text.chars().collect();
        rest.reverse();
        let (mut fill, mut align) = (None, None);
        if let Some(found) = rest.iter().nth_back(1).copied().and_then(Align::of) {
            fill = rest.pop();
            align = Some(found);
            rest.pop();
        } else if let Some(found) = rest.last().copied().and_then(Align::of) {
            align = Some(found);
            rest.pop();
        }
        let sign = rest.pop_if(|mark| ['+', '-', ' '].contains(mark));
        if rest.pop_if(|mark| *mark == '0').is_some() {
            fill = fill.or(Some('0'));
            align = align.or(Some(Align::Inside));
        }
        let width = digits(&mut rest).unwrap_or(Some(0))?;
        let precision = match rest.pop_if(|mark| *mark == '.') {
            Some(_) => Some(digits(&mut rest)??),
            None => None,
        };
        let kind = rest.pop();
        let fits = match kind {
            None => !(whole && precision.is_some()),
            Some('d') => whole && precision.is_none(),
            Some(kind) => "eEfFgG%".contains(kind),
        };
        let plain = |fill: char| fill.is_ascii_alphanumeric() || "_-+. ".contains(fill);
        let (fill, align) = (fill.unwrap_or(' '), align.unwrap_or(Align::Right));
        (fits && rest.is_empty() && plain(fill)).then_some(Format {
            fill,
            align,
            sign,
            width,
            precision,
            kind,
        })
    }

    /// The number in Python's format.
    pub(crate) fn whole(&self, value: u64) -> String {
        match self.kind {
            None | Some('d') => self.pad(false, value.to_string()),
            Some(_) => self.fraction(value as f64),
        }
    }

    /// The number in Python's format.
    pub(crate) fn fraction(&self, value: f64) -> String {
        let (negative, size) = (value.is_sign_negative() && !value.is_nan(), value.abs());
        let precision = self.precision.unwrap_or(6);
        let kind = self.kind.unwrap_or(' ');
        let digits = match kind.to_ascii_lowercase() {
            _ if !size.is_finite() => if size.is_nan() { "nan" } else { "inf" }.to_owned(),
            'f' => format!("{size:.precision$}"),
            '%' => format!("{:.precision$}", size * 100.0),
            'e' => exponent(&format!("{size:.precision$e}")),
            'g' => general(size, precision.max(1), false),
            _ => match self.precision {
                Some(precision) => general(size, precision.max(1), true),
                None => shortest(size),
            },
        };
        let digits = if kind.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        self.pad(negative, if kind == '%' { digits + "%" } else { digits })
    }

    fn pad(&self, negative: bool, digits: String) -> String {
        let sign = match self.sign {
            _ if negative => "-".to_owned(),
            Some(sign) if sign != '-' => sign.to_string(),
            _ => String::new(),
        };
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.align {
            Align::Left => sign + &digits + &fill(missing),
            Align::Right => fill(missing) + &sign + &digits,
            Align::Center => fill(missing / 2) + &sign + &digits + &fill(missing - missing / 2),
            Align::Inside => sign + &fill(missing) + &digits,
        }
    }
}

/// Reads the next number: `None` if there is none, and `Some(None)` if it is too large.
fn digits(rest: &mut Vec<char>) -> Option<Option<usize>> {
    let mut text = String::new();
    while let Some(digit) = rest.pop_if(|mark| mark.is_ascii_digit()) {
        text.push(digit);
    }
    let number = || text.parse().ok().filter(|number| *number <= MOST);
    (!text.is_empty()).then(number)
}

/// `1.5e-5` as `1.5e-05`.
fn exponent(text: &str) -> String {
    let Some((digits, power)) = text.split_once('e') else { return text.to_owned() };
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{power:0>2}")
}

/// A number with so many digits, and an exponent if it is very large or small. With `point` it always has a
/// decimal point, as in Python without a type.
fn general(size: f64, digits: usize, point: bool) -> String {
    let scientific = format!("{size:.*e}", digits - 1);
    let power: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let most = digits as i32 - i32::from(point);
    if power < -4 || power >= most {
        let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        return exponent(&format!("{}e{power}", trim(mantissa)));
    }
    let fixed = format!("{size:.*}", (digits as i32 - 1 - power).max(0) as usize);
    with_point(trim(&fixed).to_owned(), point)
}

/// A number in the format of Python's `repr`.
pub(crate) fn repr(value: f64) -> String {
    let plain = Format { fill: ' ', align: Align::Right, sign: None, width: 0, precision: None, kind: None };
    plain.fraction(value)
}

/// The fewest digits that parse to the same number.
fn shortest(size: f64) -> String {
    let scientific = format!("{size:e}");
    let power: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    if (-4..16).contains(&power) { with_point(format!("{size}"), true) } else { exponent(&scientific) }
}

fn with_point(digits: String, point: bool) -> String {
    if point && !digits.contains('.') { digits + ".0" } else { digits }
}

fn trim(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Python's output, written by `tests/golden/checkpoint_path.py`.
    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let text = include_str!("../../../tests/golden/checkpoint_path.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        assert!(cases.len() > 500);
        for case in &cases {
            let format = Format::parse(case["format"].as_str().unwrap(), case["whole"].is_u64());
            let written = format.map(|format| match case["whole"].as_u64() {
                Some(whole) => format.whole(whole),
                None => format.fraction(case["fraction"].as_str().unwrap().parse().unwrap()),
            });
            assert_eq!(written.as_deref(), case["written"].as_str(), "{case}");
        }
    }

    #[test]
    fn what_names_of_files_need_not_is_refused() {
        for text in ["x", "b", ",", "_d", "#x", "/>4", "2000d", ".99f", "02dd", "s", "!r", "\u{0}>3d", "é>3d"]
        {
            assert_eq!(Format::parse(text, true), None, "{text:?}");
        }
        assert_eq!(Format::parse("d", false), None);
    }
}
