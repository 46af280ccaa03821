// An identity provider by `oidc-provider`, on a free port of the loopback, which it prints.
// Arguments: the directory of the package, and the address of the service. Who logs in as
// ann@acme is the person ann@acme of the tenant acme.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [packages, service] = process.argv.slice(2);
const entry = createRequire(`${packages}/x.js`).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(entry));
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "refold",
      client_secret: "a secret/of the service",
      redirect_uris: [`${service}/auth/callback`],
    }],
    claims: { openid: ["sub", "org"], profile: ["name"], email: ["email", "email_verified"] },
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({
        sub: id, org: id.split("@")[1], name: `Name of ${id}`, email: id, email_verified: true,
      }),
    }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
