// Requests to the server. An answer that is no success is an `ApiError` with the server's words.

export class ApiError extends Error {
  constructor(status, kind, reason) {
    super(reason);
    this.status = status;
    this.kind = kind;
  }
}

/** Whether people log in here: then settings and folders of the server's machine are not theirs. */
export const hasPeople = () => "people" in document.documentElement.dataset;

async function request(method, path, { json, bytes, whole = false, headers = false } = {}) {
  const init = { method, headers: {}, credentials: "same-origin", cache: "no-store" };
  if (json !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(json);
  } else if (bytes !== undefined) {
    init.headers["Content-Type"] = "application/octet-stream";
    init.body = bytes;
  }
  let answer;
  try {
    answer = await fetch(path, init);
  } catch {
    throw new ApiError(0, "Unreachable", "the server cannot be reached");
  }
  if (answer.ok && headers) {
    await answer.body?.cancel();
    return answer.headers;
  }
  const text = await answer.text();
  const body = text && answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text;
  if (answer.ok) return whole ? { body, next: /<([^>]*)>; rel="next"/.exec(answer.headers.get("link"))?.[1] ?? "" } : body;
  throw new ApiError(answer.status, body?.kind ?? "", body?.reason ?? answer.statusText);
}

export const get = (path) => request("GET", path);
/** Return the headers of the response to GET. */
export const head = (path) => request("GET", path, { headers: true });
/** A page of a list: `body`, and the address of the `next`, or "". */
export const getPage = (path) => request("GET", path, { whole: true });
export const post = (path, json = {}) => request("POST", path, { json });
export const patch = (path, json) => request("PATCH", path, { json });
/** Send a PUT request with bytes or JSON. */
export const put = (path, bytes, json) => request("PUT", path, json === undefined ? { bytes } : { json });
/** Upload a file that replaces none. The response has the path that it got. */
export const putBeside = (path, bytes) => put(`${path}?rename=true`, bytes);
export const remove = (path) => request("DELETE", path);

/**
 * For a place that is read again and again: `begin()` gives a function that says whether no reading
 * has begun since. Answers come in any order, and that to the last request counts.
 */
export function readings() {
  let last = 0;
  return function begin() {
    const number = (last += 1);
    return () => number === last;
  };
}

/** Return the bytes at an address, as a `Blob`. */
export async function blob(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw new ApiError(answer.status, "", answer.statusText);
  return answer.blob();
}

/** Return the bytes of a file or a `Blob` in base64, as in a message. */
export async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += 32_768) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  }
  return btoa(binary);
}

/** Return the address of a resource of a conversation. Each part of its path is escaped. */
export function of(id, ...parts) {
  const path = parts.flatMap((part) => part.split("/")).map(encodeURIComponent).join("/");
  return `/api/conversations/${encodeURIComponent(id)}${path ? `/${path}` : ""}`;
}
