//! The Lua script: compare, remember, write.

use leasehold_core::Fence;
use leasehold_core::store::{StoreError, StoreErrorKind};
use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisResult, Script, ServerErrorKind};

use super::{Write, error};
use crate::{StaleFence, Verdict};

/// The check, for scripts of your own: put it in front of your code.
///
/// It defines `leasehold_admit(mark, offered)`. `mark` is the
/// [`mark_key`](super::mark_key) of the resource (pass it in `KEYS`), and `offered` is the
/// fence as a decimal string. It returns two values:
///
/// | first | second | meaning |
/// |---|---|---|
/// | `admitted` | the fence | write now, in the same script |
/// | `stale` | the newest fence | do not write |
/// | `corrupt` | what was found | do not write; the mark or the offered value is not a fence |
/// | `unmarked` | the server's error | do not write; the mark could not be read or set |
///
/// ```
/// let script = redis::Script::new(&format!("{}{}", leasehold_fence::redis::FRAGMENT, r"
///     local verdict, newest = leasehold_admit(KEYS[1], ARGV[1])
///     if verdict ~= 'admitted' then return {verdict, newest} end
///     redis.call('RPUSH', KEYS[2], ARGV[2])
///     return {'admitted', ARGV[1]}
/// "));
/// # let _ = script;
/// ```
///
/// Fences are compared as decimal strings, where a longer one is greater, so that
/// Lua's numbers lose no digit.
pub const FRAGMENT: &str = r"
local function leasehold_admit(mark, offered)
  local is_fence = '^[1-9]%d*$'
  if type(offered) ~= 'string' or #offered > 16 or not string.find(offered, is_fence) then
    return 'corrupt', tostring(offered)
  end
  local newest = redis.pcall('GET', mark)
  if type(newest) == 'table' then return 'unmarked', newest.err end
  if newest then
    if not string.find(newest, is_fence) then return 'corrupt', newest end
    if #offered < #newest or (#offered == #newest and offered < newest) then return 'stale', newest end
  end
  local set = redis.pcall('SET', mark, offered)
  if set.err then return 'unmarked', set.err end
  return 'admitted', offered
end
";

// The mark is set before the first write. Redis checks its memory limit only at a script's first
// write, so all later ones are done. If one fails all the same, older holders stay refused.
const APPLY_SCRIPT: &str = r"
local verdict, detail = leasehold_admit(KEYS[1], ARGV[1])
if verdict ~= 'admitted' then return {verdict, detail} end
for i = 2, #KEYS do
  local at = 3 * (i - 2) + 2
  local how, value, px = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if how == 'del' then redis.call('DEL', KEYS[i])
  elseif px == '' then redis.call('SET', KEYS[i], value)
  else redis.call('SET', KEYS[i], value, 'PX', px) end
end
return {verdict, detail}
";

/// The script and its digest.
pub(super) struct ApplyScript {
    code: String,
    digest: String,
}

impl ApplyScript {
    pub(super) fn new() -> Self {
        let code = format!("{FRAGMENT}{APPLY_SCRIPT}");
        let digest = Script::new(&code).get_hash().to_owned();
        Self { code, digest }
    }

    /// Runs the script by digest, or with its code if the server does not have it
    /// (restart, fail-over, flush: hazard R1). An unknown script has not run, so sending
    /// it again cannot do anything twice.
    pub(super) async fn run<C: ConnectionLike>(
        &self,
        connection: &mut C,
        mark: &str,
        fence: Fence,
        writes: &[Write<'_>],
    ) -> RedisResult<(String, Vec<u8>)> {
        let by_digest = command("EVALSHA", &self.digest, mark, fence, writes);
        match by_digest.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_code = command("EVAL", &self.code, mark, fence, writes);
                by_code.query_async(connection).await
            }
            answer => answer,
        }
    }
}

fn command(verb: &str, script: &str, mark: &str, fence: Fence, writes: &[Write<'_>]) -> redis::Cmd {
    // Redis requires all keys before the arguments. The script pairs them again by position.
    let mut command = redis::cmd(verb);
    command.arg(script).arg(1 + writes.len()).arg(mark);
    for write in writes {
        command.arg(write.key);
    }
    command.arg(fence.to_string());
    for write in writes {
        let how = if write.value.is_some() { "set" } else { "del" };
        command.arg(how).arg(write.value.as_deref().unwrap_or_default()).arg(write.expiry_millis());
    }
    command
}

/// Converts the script's reply.
pub(super) fn parse_reply(
    resource: &str,
    offered: Fence,
    reply: (String, Vec<u8>),
) -> Result<Verdict, StoreError> {
    let detail = String::from_utf8_lossy(&reply.1);
    match reply.0.as_str() {
        "admitted" => Ok(Verdict::Admitted(())),
        "stale" => match detail.parse() {
            Ok(newest) => Ok(Verdict::Stale(StaleFence::new(resource, offered, newest))),
            Err(_) => Err(error::corrupt_error(resource, &detail)),
        },
        "corrupt" => Err(error::corrupt_error(resource, &detail)),
        "unmarked" => Err(error::unmarked_error(&detail)),
        // Our script cannot reply this, so it is not known what ran instead.
        other => Err(StoreError::unknown(
            StoreErrorKind::Corrupt,
            format!("the fence script answered `{other}`, which it never does"),
        )),
    }
}
