// Trades the launch token behind # for a cookie, and opens the page. What stands behind #
// is never sent to a server, written to a log or told to another site.
const said = document.getElementById("said");
const token = new URLSearchParams(location.hash.slice(1)).get("launch") ?? "";
const there = location.pathname + location.search;
history.replaceState(null, "", there);
if (token) {
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ launch: token }),
  });
  if (answer.ok) location.replace(there);
  else said.textContent = (await answer.json()).reason;
} else {
  said.textContent = "Open the link that refold serve printed";
}
