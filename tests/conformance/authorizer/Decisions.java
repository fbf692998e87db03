import java.io.*;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

/** Answers questions from standard input by Kafka's own StandardAuthorizer: a line each, fields with tabs between. */
public class Decisions {
    static StandardAuthorizer authorizer;

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            var answer = answer(line.split("\t", -1));
            if (answer != null) out.println(answer);
        }
        out.flush();
    }

    static String answer(String[] f) throws Exception {
        switch (f[0]) {
            case "set":
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", f[1], "allow.everyone.if.no.acl.found", f[2], "node.id", "1"));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
                return null;
            case "rule":
                authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(ResourceType.valueOf(f[1]), f[3],
                    PatternType.valueOf(f[2]), f[4], f[5], AclOperation.valueOf(f[6]), AclPermissionType.valueOf(f[7])));
                return null;
            case "ask":
                var pattern = new ResourcePattern(ResourceType.valueOf(f[4]), f[5], PatternType.LITERAL);
                var action = new Action(AclOperation.valueOf(f[3]), pattern, 1, false, false);
                return said(authorizer.authorize(context(f[1], f[2]), List.of(action)).get(0));
            case "any":
                return said(authorizer.authorizeByResourceType(
                    context(f[1], f[2]), AclOperation.valueOf(f[3]), ResourceType.valueOf(f[4])));
            default: // filter
                var resources = new ResourcePatternFilter(
                    ResourceType.valueOf(f[1]), nullable(f[3]), PatternType.valueOf(f[2]));
                var entries = new AccessControlEntryFilter(
                    nullable(f[4]), nullable(f[5]), AclOperation.valueOf(f[6]), AclPermissionType.valueOf(f[7]));
                int found = 0;
                for (var ignored : authorizer.acls(new AclBindingFilter(resources, entries))) found++;
                return "" + found;
        }
    }

    static String said(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "yes" : "no";
    }

    static String nullable(String text) {
        return text.equals("null") ? null : text;
    }

    static AuthorizableRequestContext context(String principal, String host) throws Exception {
        var who = SecurityUtils.parseKafkaPrincipal(principal);
        var address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return ""; }
            public int correlationId() { return 0; }
        };
    }
}
