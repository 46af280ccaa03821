// Before and after a login: keeps the address that was opened, and leads back to it.
const KEY = "refold-opened";
if (document.getElementById("done")) {
  const opened = sessionStorage.getItem(KEY) ?? "/";
  sessionStorage.removeItem(KEY);
  location.replace(/^\/(?!\/)/.test(opened) ? opened : "/");
} else if (!location.pathname.startsWith("/auth/")) {
  sessionStorage.setItem(KEY, location.pathname + location.search + location.hash);
}
