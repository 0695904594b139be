//! Characters that cannot be seen. With them, two different names or holders would look equal.

use super::InvalidInput;

/// Whether a character has no shape of its own: default-ignorable code points of Unicode, direction marks, format
/// controls, and blanks that are no white space.
#[must_use]
pub fn is_invisible(ch: char) -> bool {
    matches!(ch,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // U+2800 and U+3164 are a Braille cell without dots and a Hangul letter without strokes.
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Refuses a text with an invisible character, and names its code point.
pub(super) fn check_visible(field: &str, text: &str) -> Result<(), InvalidInput> {
    match text.chars().find(|ch| is_invisible(*ch)) {
        None => Ok(()),
        Some(ch) => Err(InvalidInput::new(
            field,
            text,
            format!(
                "must not contain U+{:04X}, which cannot be seen: another {field} would look the same",
                u32::from(ch)
            ),
        )),
    }
}
