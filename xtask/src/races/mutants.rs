//! Kernels with one barrier, fence, mask, wait or bound removed or weakened.

use std::fmt;
use std::ops::Range;

/// A kernel file with one change.
pub struct Mutant {
    pub file: String,
    line: usize,
    /// The changed line, as it was, with its comment, and what of it is changed.
    code: String,
    place: Range<usize>,
    after: String,
    /// The whole file, changed.
    pub text: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { file, line, code, place, after, .. } = self;
        let (before, rest) = (code[..place.start].trim_end(), code[place.end..].trim_start());
        let (was, after) =
            (code[place.clone()].trim(), if after.is_empty() { "nothing" } else { after.trim() });
        write!(f, "{file}:{line}: {before} [{was} -> {after}] {rest}")
    }
}

impl Mutant {
    /// Whether a page has a row of a table with the file's name and a part of the line around the change.
    pub fn is_explained(&self, page: &str) -> bool {
        let rows = page.lines().filter_map(|row| row.strip_prefix(&format!("| `{}` | `", self.file)));
        let mut parts = rows.filter_map(|row| row.split_once("` |")).map(|(part, _)| part);
        parts.any(|part| {
            let mut places = self.code.match_indices(part);
            places.any(|(at, part)| at <= self.place.start && self.place.end <= at + part.len())
        })
    }
}

/// All mutants of a file. Comments, directives, constants and loops over a thread's own registers stay.
pub fn of(file: &str, text: &str) -> Vec<Mutant> {
    // What stands there is for the emulation, or for a GPU alone.
    if file == "mma.cuh" {
        return Vec::new();
    }
    let (mut all, mut start, mut unrolled) = (Vec::new(), 0, false);
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let fixed = code.trim_start().starts_with('#')
            || ["constexpr", "static_assert"].iter().any(|word| code.contains(word));
        let indent = code.len() - code.trim_start().len();
        for (at, after) in if fixed { Vec::new() } else { changes(code, unrolled) } {
            let mut changed = text.to_owned();
            changed.replace_range(start + at.start..start + at.end, &after);
            all.push(Mutant {
                file: file.to_owned(),
                line: number + 1,
                code: line.trim().to_owned(),
                place: at.start - indent..at.end - indent,
                after,
                text: changed,
            });
        }
        unrolled = code.trim() == "#pragma unroll";
        start += line.len() + 1;
    }
    all
}

/// The places of a line to change, and what to put there.
fn changes(code: &str, unrolled: bool) -> Vec<(Range<usize>, String)> {
    let mut all = Vec::new();
    let mut each = |what: &str, after: &str| {
        all.extend(code.match_indices(what).map(|(at, _)| (at..at + what.len(), after.to_owned())));
    };
    each("__syncthreads()", "");
    each("__syncwarp()", "");
    each("__threadfence()", "");
    each("commit_copies()", "");
    if code.contains("_sync(") {
        each("0xffffffffu", "0x7fffffffu");
    }
    for groups in 0..4 {
        each(&format!("wait_copies<{groups}>"), &format!("wait_copies<{}>", groups + 1));
    }
    if !unrolled {
        each("min(", "max(");
        all.extend(comparisons(code));
    }
    all
}

/// Comparisons with a bound, weakened. `a < b ? a : b`, which takes the smaller, takes the larger.
fn comparisons(code: &str) -> Vec<(Range<usize>, String)> {
    let mut all = Vec::new();
    for (sign, weaker) in [(" < ", " <= "), (" >= ", " > ")] {
        for (at, _) in code.match_indices(sign) {
            let (left, right) = (&code[..at], &code[at + sign.len()..]);
            let left = left.rsplit([' ', '(']).next().unwrap_or_default();
            let bound = right.split([' ', ')', ';']).next().unwrap_or_default();
            let is_float = bound.ends_with('f') && bound.contains(['.', 'e']);
            let clamps = right[bound.len()..].starts_with(&format!(" ? {left}"))
                || right[bound.len()..].starts_with(&format!(" ? {bound}"));
            if !is_float {
                let after = if clamps && sign == " < " { " > " } else { weaker };
                all.push((at..at + sign.len(), after.to_owned()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#include \"a < b\"
__syncthreads(); // all __syncthreads()
#pragma unroll
for (int k = 0; k < V; ++k) x += __shfl_xor_sync(0xffffffffu, x, k);
wait_copies<1>();
if (row >= rows || x < 0.5f) return;
u32 end = left < rows ? left : rows, k = min(a, b);
";

    fn changed() -> Vec<(String, Mutant)> {
        let line = |mutant: &Mutant| mutant.text.lines().nth(mutant.line - 1).unwrap().to_owned();
        of("a.cu", TEXT).into_iter().map(|mutant| (line(&mutant), mutant)).collect()
    }

    #[test]
    fn every_place_is_changed_once() {
        let lines: Vec<String> = changed().into_iter().map(|(line, _)| line).collect();
        assert_eq!(
            lines,
            [
                "; // all __syncthreads()",
                "for (int k = 0; k < V; ++k) x += __shfl_xor_sync(0x7fffffffu, x, k);",
                "wait_copies<2>();",
                "if (row > rows || x < 0.5f) return;",
                "u32 end = left < rows ? left : rows, k = max(a, b);",
                "u32 end = left > rows ? left : rows, k = min(a, b);",
            ]
        );
        for (_, mutant) in changed() {
            assert_eq!(mutant.text.lines().count(), TEXT.lines().count());
            let same = mutant.text.lines().zip(TEXT.lines()).filter(|(a, b)| a == b).count();
            assert_eq!(same, TEXT.lines().count() - 1);
        }
        assert!(of("mma.cuh", TEXT).is_empty());
    }

    #[test]
    fn an_explanation_names_the_file_and_the_changed_place() {
        let (_, mutant) = changed().swap_remove(3);
        assert_eq!(mutant.to_string(), "a.cu:6: if (row [>= -> >] rows || x < 0.5f) return;");
        for (page, explained) in [
            ("text\n| `a.cu` | `row >= rows` | because |\n", true),
            ("| `b.cu` | `row >= rows` | because |", false),
            ("| `a.cu` | `rows || x < 0.5f` | because |", false),
            ("", false),
        ] {
            assert_eq!(mutant.is_explained(page), explained, "{page}");
        }
    }
}
