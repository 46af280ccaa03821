// An authorization server by `oidc-provider`, on a free port of the loopback, which it prints.
// Arguments: the directory of the package, and the address of the MCP server.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [packages, resource] = process.argv.slice(2);
const entry = createRequire(`${packages}/x.js`).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(entry));
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    scopes: ["openid", "offline_access", "read"],
    features: {
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => resource,
        getResourceServerInfo: () => ({ scope: "read", audience: resource, accessTokenTTL: 3600, accessTokenFormat: "jwt" }),
        useGrantedResource: () => true,
      },
    },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
