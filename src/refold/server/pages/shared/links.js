// Where a link leads, against what its text says. A text that looks like an address and is another
// one gets the true one beside it; every link has it as its title.

const UNSEEN = /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]/g;
const WEB = "http:";
const ADDRESS = /(?:[a-z][a-z0-9+.-]*:\/\/|www\.)\S+|[^\s@/]+@[^\s@]+\.\S+|(?:[\p{L}\p{N}-]+\.)+\p{L}{2,}(?::\d+)?(?:[/?#]\S*)?/giu;

/** Whether the text of this link looks like an address to which it does not lead. */
export function misleads(link) {
  const target = plain(link.href);
  if (target.includes("xn--")) return true; // letters of the name may look like others
  const text = (link.textContent ?? "").normalize("NFKC").replace(UNSEEN, "");
  return [...text.matchAll(ADDRESS)].some(([address]) => plain(address.replace(/[.,;:!?)\]]+$/, "")) !== target);
}

/** Return an address in a form that is equal for all its spellings. */
function plain(address) {
  const scheme = /^(?:https?:\/\/|mailto:)/i.test(address);
  const whole = scheme ? address : address.includes("@") && !address.includes("/") ? `mailto:${address}` : `${WEB}//${address.replace(/^[a-z][a-z0-9+.-]*:\/\//i, "")}`;
  try {
    const url = new URL(whole);
    const path = url.protocol === "mailto:" ? url.pathname : `//${url.host.replace(/^www\./, "")}${url.pathname}${url.search}${url.hash}`;
    return path.replace(/\/$/, "");
  } catch {
    return address;
  }
}
