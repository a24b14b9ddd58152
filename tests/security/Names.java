import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Lines of a file: `certificate BASE64`, or `rules BASE64 BASE64` (rules, a name); an answer each, in base64. */
public class Names {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            String answer;
            if (words[0].equals("certificate")) {
                var der = new ByteArrayInputStream(Base64.getDecoder().decode(words[1]));
                var read = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(der);
                answer = read.getSubjectX500Principal().getName();
            } else {
                try {
                    answer = SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                } catch (SslPrincipalMapper.NoMatchingRule none) {
                    answer = "NoMatchingRule";
                } catch (IllegalArgumentException wrong) {
                    answer = "IllegalArgument";
                }
            }
            System.out.println(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
        }
    }

    static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
